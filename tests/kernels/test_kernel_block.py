"""The split-KV kernel and its merge, on a GPU or in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from attention_cases import WRITTEN, Case, case, worst
from covering import diagonal, thinned
from sooner.engine.attention import kernel, reference
from sooner.engine.attention.block import PAGE, Block

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LEFT_OUT = {"largest tree"}
"""`test_any_tile` has blocks of this size."""
SLOW = {"long chain", "nearly even", "first chunk", "one page and one"}


def run(case: Case, splits: int | None = None) -> torch.Tensor:
    tensors = [None if part is None else part.to(DEVICE) for part in case.block[:-1]]
    block = Block(*tensors, written=case.block.written)
    states = [states.to(DEVICE) for states in (case.query, case.keys, case.values)]
    options = {
        name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value
        for name, value in case.options.items()
    }
    scale = case.query.shape[-1] ** -0.5
    return kernel.attend(*states, block, scale, splits=splits, **options).cpu()


@pytest.mark.parametrize("name", thinned(sorted(WRITTEN.keys() - LEFT_OUT), WRITTEN.keys() - SLOW))
def test_it_equals_its_definition(name: str) -> None:
    lengths, entries, options = WRITTEN[name]
    example = case(lengths, entries, **options)
    assert worst(example, run(example), every=1 + entries // 8) < 2e-5


@pytest.mark.parametrize(("size", "splits"), diagonal([(0, 2), (257, 1), (300, 65)], [1, 2, 8]))
def test_any_number_of_splits_gives_the_same(size: tuple[int, int], splits: int) -> None:
    length, entries = size
    example = case([length, 0], entries, group=2, kv_heads=1, tree=True, sizes=[entries, 1])
    assert worst(example, run(example, splits), every=1 + entries // 8) < 2e-5


@pytest.mark.parametrize("dim", [64, 96, 128, 256])
def test_any_tile(dim: int) -> None:
    example = case([70], 128, group=1, kv_heads=1, dim=dim, tree=True)
    assert worst(example, run(example), every=9) < 2e-5


@pytest.mark.parametrize("dim", [64, 96])
def test_half_precision(dim: int) -> None:
    example = case([140], 17, group=4, kv_heads=1, dim=dim, tree=True, dtype=torch.float16)
    wide = [part.double() for part in (example.query, example.keys, example.values)]
    exact = reference.attend(*wide, example.block, dim**-0.5)
    assert (run(example) - exact).abs().max() < 4e-3


def test_pages_are_read_where_the_table_points() -> None:
    example = case([300, 40], 5, tree=True)
    table = torch.tensor([[3, 0], [5, 2]], dtype=torch.int32)
    for name in ("keys", "values"):
        states = getattr(example, name)
        pages = states.unflatten(2, (2, PAGE)).transpose(1, 2).flatten(0, 1)  # [pages, heads, ...]
        stored = torch.full_like(pages[:1], torch.nan).repeat(6, 1, 1, 1)
        stored[table.flatten().long()] = pages
        setattr(example, name, stored)
    plain = case([300, 40], 5, tree=True)
    example.block = example.block._replace(page_table=table)
    assert torch.equal(run(example), run(plain))
