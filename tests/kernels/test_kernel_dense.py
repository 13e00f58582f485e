"""The dense kernel, and what all kernels share: states, strides, dtypes, parts that add up."""

from __future__ import annotations

import pytest
import torch
from cases import DEVICE, LAYOUTS, agree, hold_errors, nothing_yet, states

from covering import diagonal
from sooner.errors import SoonerError
from sooner.sparse.attention import Partial, Reference, States
from sooner.sparse.attention.triton import TritonBackend
from sooner.sparse.modality import PromptLayout
from sooner.sparse.plane import Plane, plane_of, whole

KINDS = [
    (1, 1, 1, 64, torch.float32),
    (63, 2, 1, 64, torch.float16),
    (64, 4, 1, 96, torch.bfloat16),
    (65, 2, 2, 128, torch.float32),
    (65, 2, 1, 96, torch.float16),
    (200, 4, 2, 64, torch.bfloat16),
    (257, 2, 1, 128, torch.float16),
    (70, 2, 1, 256, torch.float32),
    (70, 1, 1, 256, torch.float16),
]


def all_heads(row: States) -> torch.Tensor:
    return torch.arange(len(row.queries), device=DEVICE)


def causal(plane: Plane) -> torch.Tensor:
    return torch.arange(len(plane.keys), device=DEVICE) <= plane.frontier[:, None]


@pytest.mark.parametrize(("tokens", "heads", "kv_heads", "head_dim", "dtype"), KINDS, ids=str)
def test_errors_are_no_more_than_twice_torch_s(
    tokens: int, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype
) -> None:
    layout = PromptLayout.text(tokens).to(DEVICE)
    row, plane = states(layout, heads, kv_heads, head_dim, dtype), whole(layout)
    into = nothing_yet(row)
    TritonBackend().attend(row, plane, None, all_heads(row), into)
    hold_errors(row, layout, plane, into, lambda head: causal(plane))


@pytest.mark.parametrize(("kind", "name"), diagonal(["whole", "query", "pair"], [*LAYOUTS]))
def test_planes_are_attended_to_through_their_slots(kind: str, name: str) -> None:
    layout = LAYOUTS[name].to(DEVICE)
    row = states(layout, 2, 1, 64)
    first, last = layout.present[0], layout.present[-1]
    plane = {
        "whole": lambda: whole(layout),
        "query": lambda: plane_of(layout, last),
        "pair": lambda: plane_of(layout, f"{first}:{last}"),
    }[kind]()
    made, expected = nothing_yet(row), Partial.empty(row)
    TritonBackend().attend(row, plane, None, all_heads(row), made)
    Reference().attend(row, plane, None, all_heads(row), expected)
    agree(made, expected)
    assert made.output[expected.lse == -torch.inf].isnan().all(), (
        "wrote to a token that sees nothing"
    )


def test_parts_add_up_inside_the_kernel() -> None:
    layout = LAYOUTS["interleaved"].to(DEVICE)
    row = states(layout, 2, 1, 64)
    parts, expected = nothing_yet(row), Partial.empty(row)
    for query in layout.present:
        for key in layout.present:
            TritonBackend().attend(
                row, plane_of(layout, f"{query}:{key}"), None, all_heads(row), parts
            )
    Reference().attend(row, whole(layout), None, all_heads(row), expected)
    agree(parts, expected)


def test_heads_that_were_not_picked_are_left_alone() -> None:
    layout = LAYOUTS["text"].to(DEVICE)
    row = states(layout, 4, 2, 64)
    into = nothing_yet(row)
    TritonBackend().attend(row, whole(layout), None, torch.tensor([2, 1], device=DEVICE), into)
    assert into.output[[0, 3]].isnan().all()
    assert into.output[[1, 2]].isfinite().all()


def test_a_dtype_that_no_kernel_reads_is_refused() -> None:
    layout = PromptLayout.text(4).to(DEVICE)
    row = states(layout, 1, 1, 64, torch.float64)
    with pytest.raises(SoonerError, match="fp16, bf16 or fp32, not float64"):
        TritonBackend().attend(row, whole(layout), None, all_heads(row), nothing_yet(row))
