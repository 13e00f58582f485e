"""The grid kernels against their reference, their definition, and torch's own error."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, LAYOUTS, agree, hold_errors, nothing_yet, states

from sooner.sparse.attention import Partial, Reference
from sooner.sparse.attention.triton import TritonBackend
from sooner.sparse.index import fold
from sooner.sparse.kernels.fold import fold as fold_on_device
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import GridIndex
from sooner.sparse.plane import whole

HEADS = [
    # stride, phase, hline, vline, slash, sink, local
    (5, 2, True, True, True, 0, 1),
    (3, 0, False, True, True, 0, 1),
    (4, 3, True, False, False, 0, 1),
    (6, 1, False, True, False, 0, 1),
    (7, 6, False, True, False, 0, 1),
    (5, 0, False, False, True, 0, 5),  # strided
    (2, 1, True, True, True, 70, 9),
    (70, 4, True, True, False, 3, 2),  # a stride beyond some lengths
    (1, 0, False, False, True, 0, 1),
]
KINDS = [
    (1, 4, torch.float32, 64),
    (63, 2, torch.float16, 64),
    (64, 1, torch.float32, 128),
    (65, 2, torch.bfloat16, 96),
    (200, 2, torch.float16, 128),
    (257, 4, torch.float32, 64),
    (65, 4, torch.float16, 256),
]


def index_of(heads: list[tuple[int, int, bool, bool, bool, int, int]]) -> GridIndex:
    return GridIndex(*(torch.tensor(column, device=DEVICE) for column in zip(*heads, strict=True)))


@pytest.mark.parametrize(("tokens", "group", "dtype", "head_dim"), KINDS, ids=str)
def test_errors_are_no_more_than_twice_torch_s(
    tokens: int, group: int, dtype: torch.dtype, head_dim: int
) -> None:
    picked = HEADS[:8] if tokens == 64 else [HEADS[0], HEADS[4], HEADS[5], HEADS[6]]
    layout = PromptLayout.text(tokens).to(DEVICE)
    row, plane = states(layout, len(picked), len(picked) // group, head_dim, dtype), whole(layout)
    index, into = index_of(picked), nothing_yet(row)
    TritonBackend().attend(row, plane, index, torch.arange(len(picked), device=DEVICE), into)
    hold_errors(row, layout, plane, into, lambda head: index.seen(head, plane))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_kernels_agree_with_the_reference(name: str) -> None:
    layout = LAYOUTS[name].to(DEVICE)
    picked = [HEADS[0], HEADS[6], HEADS[8], HEADS[4]]
    row, plane = states(layout, 4, 2, 64), whole(layout)
    index, heads = index_of(picked), torch.arange(4, device=DEVICE)
    made, expected = nothing_yet(row), Partial.empty(row)
    TritonBackend().attend(row, plane, index, heads, made)
    Reference().attend(row, plane, index, heads, expected)
    agree(made, expected)


@pytest.mark.parametrize("is_spread", [False, True])
def test_strides_and_phases_are_chosen_as_without_a_kernel(is_spread: bool) -> None:
    """Heads with several strides, with one, without a phase to find, and one that is not probed."""
    generator = torch.Generator().manual_seed(0)
    profiles = torch.rand(3, 2, 150, generator=generator, dtype=torch.float64).to(DEVICE)
    spread = torch.rand(3, 9, generator=generator).to(DEVICE) if is_spread else None
    frontier = torch.arange(141, 150).expand(3, -1).clone().to(DEVICE)
    frontier[1, :4] = -1
    strides = torch.tensor([[2, 7, 75, 0], [5, 0, 0, 0], [3, 9, 70, 4], [6, 0, 0, 0]])
    rules = torch.tensor([[-1, 1, 0, 1, 1], [-1, 1, 1, 1, 1], [4, 0, 1, 0, 0], [2, 1, 0, 1, 0]])
    given = profiles, spread, frontier, strides.to(DEVICE), rules.to(DEVICE), 75
    (gains, choices), (made, drawn) = fold(*given), fold_on_device(*given)
    torch.testing.assert_close(made[:3], gains[:3])
    assert torch.equal(drawn, choices)
