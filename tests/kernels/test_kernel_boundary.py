"""Q- and 2D-boundary kernels, which permute inside, against the reference and torch's error."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from cases import DEVICE, LAYOUTS, agree, hold_errors, nothing_yet, states
from test_kernel_grid import HEADS, index_of
from test_kernel_vertical_slash import lines

from covering import diagonal
from sooner.sparse.attention import Partial, Reference, sparse_attention
from sooner.sparse.attention.triton import TritonBackend
from sooner.sparse.patterns import AShape, Dense, Grid, QBoundary, TwoDBoundary
from sooner.sparse.plane import Plane, plane_of

NAMES = ("video", "interleaved", "padded")
GRIDS = [HEADS[6], (3, 1, True, False, True, 4, 3), HEADS[4], HEADS[2]]


def planes(name: str, kind: str) -> list[Plane]:
    layout = LAYOUTS[name].to(DEVICE)
    if kind == "query":
        return [plane_of(layout, query) for query in layout.present]
    return [
        plane_of(layout, f"{query}:{key}") for query in layout.present for key in layout.present
    ]


@pytest.mark.parametrize(
    ("name", "index_kind"), diagonal(NAMES, [*product(["lines", "grid"], ["query", "pair"])])
)
def test_the_kernels_agree_with_the_reference(name: str, index_kind: tuple[str, str]) -> None:
    what, kind = index_kind
    layout = LAYOUTS[name].to(DEVICE)
    row, heads = states(layout, 2, 1, 64), torch.arange(2, device=DEVICE)
    picked = GRIDS[:2] if name == "padded" else GRIDS[2:]
    for plane in planes(name, kind):
        index = lines(plane, 2) if what == "lines" else index_of(picked)
        made, expected = nothing_yet(row), Partial.empty(row)
        TritonBackend().attend(row, plane, index, heads, made)
        Reference().attend(row, plane, index, heads, expected)
        agree(made, expected)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    diagonal(["query", "pair"], [torch.float16, torch.bfloat16, torch.float32]),
    ids=str,
)
def test_errors_are_no_more_than_twice_torch_s(kind: str, dtype: torch.dtype) -> None:
    layout = LAYOUTS["interleaved"].to(DEVICE)
    row, heads = states(layout, 2, 1, 96, dtype), torch.arange(2, device=DEVICE)
    plane = plane_of(layout, "text") if kind == "query" else plane_of(layout, "text:video")
    for index in (lines(plane, 2), index_of(GRIDS[:2])):
        into = nothing_yet(row)
        TritonBackend().attend(row, plane, index, heads, into)
        hold_errors(row, layout, plane, into, lambda head, index=index: index.seen(head, plane))


@pytest.mark.parametrize("name", NAMES)
def test_whole_rows_of_mixed_patterns_are_the_reference_s(name: str) -> None:
    layout = LAYOUTS[name].to(DEVICE)
    spaced = Grid(6, 1)
    patterns = [
        QBoundary({"video": spaced, "text": AShape(3, 9)}),
        TwoDBoundary({"video:video": spaced, "text:video": AShape(3, 8)}),
        Dense(),
        spaced,
    ]
    row = states(layout, 4, 1, 64)
    row.queries[row.queries.isnan()] = 0.0  # the probe of dynamic patterns is not under test
    row.keys[row.keys.isnan()] = 0.0
    made = sparse_attention(row, layout, patterns, TritonBackend())
    reference = sparse_attention(row, layout, patterns, Reference())
    reference_output = reference.output.nan_to_num(0.0)
    torch.testing.assert_close(made.output, reference_output, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(made.lse, reference.lse, rtol=1e-5, atol=1e-5)
