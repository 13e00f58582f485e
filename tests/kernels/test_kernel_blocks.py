"""The kernels of blocks, attention and estimate, against the reference and torch's own error."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, LAYOUTS, agree, hold_errors, nothing_yet, states

from covering import diagonal
from sooner.sparse.attention import Partial, Reference
from sooner.sparse.attention.triton import TritonBackend
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import BlockIndex
from sooner.sparse.plane import Plane, PlaneStack, plane_of, whole
from sooner.sparse.probe import BlockCells, estimate_blocks

KINDS = [
    (1, 2, 1, 64, torch.float32),
    (65, 2, 2, 64, torch.bfloat16),
    (200, 2, 1, 128, torch.float16),
    (150, 4, 2, 96, torch.float32),
]


def marked(plane: Plane, sizes: tuple[int, ...]) -> BlockIndex:
    """Different blocks for each head; the last has none but its own."""
    generator = torch.Generator().manual_seed(3)
    count = -(-len(plane.keys) // min(sizes))
    marks = torch.rand(len(sizes), count, count, generator=generator) < 0.5
    marks[-1] = False
    marks = marks.tril(-1) | torch.eye(count, dtype=torch.bool)
    return BlockIndex.of(marks.to(DEVICE), sizes)


@pytest.mark.parametrize(("tokens", "heads", "kv_heads", "head_dim", "dtype"), KINDS, ids=str)
def test_errors_are_no_more_than_twice_torch_s(
    tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    layout = PromptLayout.text(tokens).to(DEVICE)
    row, plane = states(layout, heads, kv_heads, head_dim, dtype), whole(layout)
    index, into = marked(plane, (64, 16, 32, 128)[:heads]), nothing_yet(row)
    TritonBackend().attend(row, plane, index, torch.arange(heads, device=DEVICE), into)
    hold_errors(row, layout, plane, into, lambda head: index.seen(head, plane))


@pytest.mark.parametrize(
    ("name", "region"),
    diagonal(["interleaved", "padded"], ["", "video", "text:video", "video:text"]),
)
def test_planes_agree_with_the_reference(name: str, region: str) -> None:
    layout = LAYOUTS[name].to(DEVICE)
    row, plane = states(layout, 2, 1, 64), plane_of(layout, region)
    index, heads = marked(plane, (16, 32)), torch.arange(2, device=DEVICE)
    made, expected = nothing_yet(row), Partial.empty(row)
    TritonBackend().attend(row, plane, index, heads, made)
    Reference().attend(row, plane, index, heads, expected)
    agree(made, expected)


@pytest.mark.parametrize("name", ["interleaved", "padded"])
def test_the_estimate_is_torch_s(name: str) -> None:
    layout = LAYOUTS[name].to(DEVICE)
    row = states(layout, 4, 2, 64)
    regions = ("", "text", "text:video", "video:text")
    stack = PlaneStack(tuple(plane_of(layout, region) for region in regions))
    groups = [
        BlockCells(16, 3, 1, [(0, 0), (1, 2)]),
        BlockCells(32, 8, 0, [(2, 3), (3, 1), (0, 2)]),
    ]
    cells = [cell for group in groups for cell in group.cells]
    table = torch.tensor(cells, device=DEVICE).T.contiguous()
    made = TritonBackend.estimate(row, stack, groups, table)
    expected = estimate_blocks(row, stack, groups, table)
    real = expected.isinf().any(2)  # blocks with queries see themselves
    torch.testing.assert_close(made[real], expected[real])
