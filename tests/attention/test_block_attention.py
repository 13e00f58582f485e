"""Block attention against its definition in fp64: lengths, trees, windows, poisoned slots."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attention_cases import WRITTEN, Case, case, tree_block, worst
from sooner.engine.attention import reference
from sooner.engine.attention.block import (
    PAGE,
    Block,
    block_slots,
    pack_ancestors,
    unpack_ancestors,
)
from sooner.engine.attention.context import block_attention
from sooner.engine.attention.cpu import zero_slots
from sooner.engine.tree import Tree
from sooner.errors import SoonerError


def by_reference(example: Case) -> torch.Tensor:
    return reference.attend(*example.arguments, example.query.shape[-1] ** -0.5, **example.options)


def by_operator(example: Case) -> torch.Tensor:
    return block_attention(*example.arguments, **example.options)


@pytest.mark.parametrize("attend", [by_reference, by_operator])
@pytest.mark.parametrize("unseen", [torch.nan, 1e6])
@pytest.mark.parametrize("name", WRITTEN)
def test_it_equals_its_definition(name: str, unseen: float, attend: Any) -> None:
    lengths, entries, options = WRITTEN[name]
    example = case(lengths, entries, unseen=unseen, **options)
    assert worst(example, attend(example), every=1 + entries // 12) < 2e-6


@pytest.mark.parametrize("entries", [1, 2, 64, 65, 128])
@pytest.mark.parametrize("length", [0, 1, 255, 256, 257])
@pytest.mark.parametrize("tree", [False, True])
def test_blocks_of_any_size_follow_any_length(entries: int, length: int, tree: bool) -> None:
    example = case([length], entries, group=3, kv_heads=1, tree=tree)
    assert worst(example, by_operator(example), every=1 + entries // 5) < 2e-6


def test_the_operator_and_the_reference_agree_on_anything() -> None:
    draw = torch.Generator().manual_seed(1)

    def pick(*options: Any) -> Any:
        return options[int(torch.randint(len(options), (), generator=draw))]

    for seed in range(120):
        rows, entries = pick(1, 2, 3), pick(1, 2, 5, 31, 64, 65, 128)
        lengths = [pick(0, 1, 60, 300, 301, 1100) for _ in range(rows)]
        sizes = [pick(entries, entries, 1 + entries // 2, 0) for _ in range(rows)]
        example = case(
            lengths, entries, group=pick(1, 2, 4, 7), tree=pick(False, True), capacity=1300,
            sizes=pick(None, sizes), seed=seed, window=pick(None, None, 7, 100),
            chunk=pick(None, None, None, 64), softcap=pick(None, None, None, 5.0),
            sinks=pick(False, True), unseen=pick(torch.nan, -3e5),
        )  # fmt: skip
        made, expected = by_operator(example), by_reference(example)
        real = torch.arange(entries) < torch.tensor(example.sizes)[:, None]
        assert made.isfinite().all()
        assert expected.isfinite().all()
        error = (made - expected).transpose(1, 2)[real]
        assert not error.numel() or error.abs().max() < 3e-6, (
            seed,
            lengths,
            entries,
            example.options,
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("length", "entries"), [(300, 1), (300, 17), (1500, 17)])
def test_errors_in_half_precision_are_no_more_than_twice_torch_s(
    dtype: torch.dtype, length: int, entries: int
) -> None:
    example = case([length], entries, group=4, dim=64, capacity=1600, tree=True, dtype=dtype)
    end = length + entries
    seen = reference.seen_slots(example.block, entries, torch.arange(end))[:, None]
    states = [store[:, :, :end].repeat_interleave(4, 1) for store in (example.keys, example.values)]
    peer = scaled_dot_product_attention(example.query, *states, attn_mask=seen)
    wide = [part.double() for part in (example.query, example.keys, example.values)]
    exact = reference.attend(*wide, example.block, 64**-0.5)
    ours, reference_error = (
        (part - exact).square().mean().sqrt() for part in (by_operator(example), peer)
    )
    assert ours <= 2 * reference_error


def test_pages_are_read_where_the_table_points() -> None:
    example = case([300, 40], 9, tree=True)
    table = torch.tensor([[3, 0], [5, 2]], dtype=torch.int32)
    keys, values = (torch.full((6, 2, PAGE, 16), torch.nan) for _ in range(2))
    for row in range(2):
        for number, page in enumerate(table[row].tolist()):
            here = slice(number * PAGE, (number + 1) * PAGE)
            keys[page], values[page] = example.keys[row, :, here], example.values[row, :, here]
    paged = example.block._replace(page_table=table)
    made = block_attention(example.query, keys, values, paged)
    assert torch.equal(made, by_operator(example))
    assert worst(example, reference.attend(example.query, keys, values, paged, 0.25)) < 2e-6


def test_stores_may_have_any_strides() -> None:
    example = case([30, 44], 5)
    apart = [
        store.transpose(1, 2).contiguous().transpose(1, 2)
        for store in (example.keys, example.values)
    ]
    torch.testing.assert_close(
        block_attention(example.query, *apart, example.block), by_operator(example)
    )


@pytest.mark.parametrize("entries", [1, 5, 200])
def test_a_block_that_does_not_fit_reads_nothing_after_its_row(entries: int) -> None:
    example = case([0], 300, capacity=300)
    query = example.query[:, :, :entries]
    for length in (298, 300):
        block = Block(torch.tensor([length]))
        made = block_attention(query, example.keys, example.values, block)
        torch.testing.assert_close(
            made, reference.attend(query, example.keys, example.values, block, 0.25)
        )


@pytest.mark.parametrize("entries", [2, 31, 32, 33, 128])
def test_bits_hold_the_ancestors_of_a_tree(entries: int) -> None:
    example = case([0, 0], entries, tree=True)
    assert example.parents is not None
    tree = Tree.from_lists([[0] * (entries - 1)] * 2, example.parents)
    assert example.block.ancestors is not None
    assert example.block.ancestors.dtype == torch.int32
    assert torch.equal(unpack_ancestors(example.block.ancestors), tree.ancestors())
    assert torch.equal(pack_ancestors(tree.ancestors()), example.block.ancestors)
    assert torch.equal(example.block.depths, tree.depths())


def test_a_tree_in_levels_is_a_tree_at_once() -> None:
    """Upper levels are written before; more words than a kernel's hold larger blocks."""
    for seed, (lengths, entries) in enumerate([([300, 40], 12), ([0], 128), ([7, 9, 7], 60)]):
        example = case(lengths, entries, tree=True, seed=seed)
        whole = by_operator(example)
        assert example.block.ancestors is not None
        for written in (1, entries // 2, entries - 1):
            words = pack_ancestors(unpack_ancestors(example.block.ancestors), words=7)
            block = example.block._replace(ancestors=words[:, written:], written=written)
            query = example.query[:, :, written:]
            for attend in (block_attention, reference.attend):
                scale = () if attend is block_attention else (0.25,)
                made = attend(query, example.keys, example.values, block, *scale)
                torch.testing.assert_close(made, whole[:, :, written:], atol=2e-6, rtol=2e-5)


def test_padding_is_nobody_s_ancestor_and_sees_nothing() -> None:
    block = tree_block(torch.tensor([4]), torch.tensor([[-1, 0, 1]]), torch.tensor([3]))
    assert block.ancestors is not None
    reach = unpack_ancestors(block.ancestors)[0]
    assert reach.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]]


def test_padding_and_what_does_not_fit_go_to_the_trash_slot() -> None:
    block = Block(torch.tensor([0, 5, 7, 0]), torch.tensor([3, 2, 3, 0]))
    assert block_slots(block, 3, 9).tolist() == [[0, 1, 2], [5, 6, 8], [7, 8, 8], [8, 8, 8]]
    assert block_slots(Block(torch.tensor([7])), 3, 9).tolist() == [[7, 8, 8]]


def test_more_entries_than_bits_are_refused() -> None:
    with pytest.raises(SoonerError, match="129 entries are more than the 128"):
        pack_ancestors(torch.ones(1, 129, 129, dtype=torch.bool))


def test_shapes_that_do_not_fit_are_refused() -> None:
    store = torch.zeros(1, 2, 8, 4)
    with pytest.raises(SoonerError, match="3 query heads do not fit keys of shape"):
        block_attention(torch.zeros(1, 3, 1, 4), store, store, Block(torch.tensor([0])))
    query, chain = torch.zeros(1, 2, 1, 4), Block(torch.tensor([0]), written=2)
    with pytest.raises(SoonerError, match="a chain behind 2 entries"):
        block_attention(query, store, store, chain)
    tree = tree_block(torch.tensor([0]), torch.tensor([[-1, 0]]))
    with pytest.raises(SoonerError, match="2 entries does not fit the ancestors of 3"):
        block_attention(torch.zeros(1, 2, 2, 4), store, store, tree)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(3, 5, 7), (1,), (0, 4), (2, 4, 300, 64)])
def test_slots_of_zeros_are_what_torch_gives(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    like = torch.ones(2, dtype=dtype)
    made, expected = zero_slots(like, shape), torch.zeros(shape, dtype=dtype)
    assert torch.equal(made, expected)
    assert (made.dtype, made.device) == (expected.dtype, expected.device)
    assert made.is_contiguous()
    assert made.data_ptr() % 64 == 0
    made[:1] += 1  # it can be written
    assert zero_slots(torch.ones(2, device="meta", dtype=dtype), shape).device.type == "meta"


def test_zeros_that_nobody_writes_take_no_memory() -> None:
    """By the kernel's account of these pages alone, whatever else the process does."""
    made = zero_slots(torch.ones(1), (1 << 26,))  # 256 MiB
    assert made[-1] == 0
    start = made.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
    resident = (ctypes.c_ubyte * (made.nbytes // mmap.PAGESIZE))()
    length = ctypes.c_size_t(made.nbytes)
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(start), length, resident) == 0
    assert sum(page & 1 for page in resident) < 0.1 * len(resident)
