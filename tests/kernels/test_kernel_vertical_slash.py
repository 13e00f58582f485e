"""The vertical-slash kernel against its reference, its definition, and torch's own error."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, LAYOUTS, agree, hold_errors, nothing_yet, states

from sooner.sparse.attention import Partial, Reference
from sooner.sparse.attention.triton import TritonBackend
from sooner.sparse.modality import PromptLayout
from sooner.sparse.pairs import LineIndex
from sooner.sparse.plane import Plane, whole

KINDS = [
    (1, 2, 1, 64, torch.float32),
    (63, 2, 2, 64, torch.bfloat16),
    (64, 2, 1, 128, torch.float16),
    (65, 4, 1, 96, torch.float32),
    (200, 2, 1, 256, torch.float16),
    (257, 4, 2, 64, torch.float16),
    (257, 2, 1, 128, torch.float32),
]


def lines(plane: Plane, heads: int, bottom: bool = True, block: int = 64) -> LineIndex:
    """Different lines for each head; the last has none but the first diagonal."""
    generator = torch.Generator().manual_seed(3)
    count = len(plane.keys)
    vertical, slash, last = [], [], []
    for head in range(heads):
        none = head == heads - 1 and heads > 1
        vertical.append(torch.randperm(count, generator=generator)[: 0 if none else 5 + 20 * head])
        slash.append(torch.randperm(count, generator=generator)[: 0 if none else head + 1])
        last.append(7 * head if bottom else 0)
    return LineIndex.build(plane, vertical, slash, last, block)


@pytest.mark.parametrize(("tokens", "heads", "kv_heads", "head_dim", "dtype"), KINDS, ids=str)
def test_errors_are_no_more_than_twice_torch_s(
    tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    layout = PromptLayout.text(tokens).to(DEVICE)
    row, plane = states(layout, heads, kv_heads, head_dim, dtype), whole(layout)
    index, into = lines(plane, heads), nothing_yet(row)
    TritonBackend().attend(row, plane, index, torch.arange(heads, device=DEVICE), into)
    hold_errors(row, layout, plane, into, lambda head: index.seen(head, plane))


@pytest.mark.parametrize("block", [16, 32, 128])
def test_blocks_of_other_sizes_are_those_of_the_index(block: int) -> None:
    layout = PromptLayout.text(150).to(DEVICE)
    row, plane = states(layout, 2, 1, 64), whole(layout)
    index, heads = lines(plane, 2, block=block), torch.arange(2, device=DEVICE)
    made, expected = nothing_yet(row), Partial.empty(row)
    TritonBackend().attend(row, plane, index, heads, made)
    Reference().attend(row, plane, index, heads, expected)
    agree(made, expected)


def test_a_column_that_is_named_twice_counts_once() -> None:
    layout = PromptLayout.text(150).to(DEVICE)
    row, plane = states(layout, 1, 1, 64), whole(layout)
    twice = [torch.tensor([3, 3, 20, 20, 20], device=DEVICE)]
    index = LineIndex.build(plane, twice, [torch.tensor([0], device=DEVICE)], [0])
    made, expected = nothing_yet(row), Partial.empty(row)
    heads = torch.zeros(1, dtype=torch.long, device=DEVICE)
    TritonBackend().attend(row, plane, index, heads, made)
    Reference().attend(row, plane, index, heads, expected)
    agree(made, expected)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_kernel_agrees_with_the_reference(name: str) -> None:
    layout = LAYOUTS[name].to(DEVICE)
    row, plane = states(layout, 4, 2, 64), whole(layout)
    index, heads = lines(plane, 4), torch.arange(4, device=DEVICE)
    made, expected = nothing_yet(row), Partial.empty(row)
    TritonBackend().attend(row, plane, index, heads, made)
    Reference().attend(row, plane, index, heads, expected)
    agree(made, expected)
