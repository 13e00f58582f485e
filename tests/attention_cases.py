"""Random blocks over poisoned slots, and block attention in fp64, row by row and head by head."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sooner.engine.attention.block import Block, pack_ancestors
from sooner.engine.tree import Tree


@dataclass
class Case:
    """Arguments of `block_attention`, and what is known on the host of the same."""

    query: Tensor
    keys: Tensor
    values: Tensor
    block: Block
    lengths: list[int]
    sizes: list[int]
    parents: list[list[int]] | None
    options: dict[str, Any]
    written: int = 0

    @property
    def arguments(self) -> tuple[Tensor, Tensor, Tensor, Block]:
        return self.query, self.keys, self.values, self.block


def tree_block(lengths: Tensor, parents: Tensor, sizes: Tensor | None = None) -> Block:
    """The block of draft trees behind their roots.

    Args:
        lengths: committed slots, `[rows]`.
        parents: each node's parent node, or -1 for the root, `[rows, nodes]`.
        sizes: real *entries* of each row, root included, `[rows]`; `None` if all nodes are real.
    """
    rows, nodes = parents.shape
    tree = Tree(torch.zeros_like(parents), parents, torch.full((rows,), nodes))
    return Block(lengths, sizes, pack_ancestors(tree.ancestors(), sizes), tree.depths())


def case(
    lengths: list[int],
    entries: int,
    *,
    group: int = 2,
    kv_heads: int = 2,
    dim: int = 16,
    tree: bool = False,
    sizes: list[int] | None = None,
    capacity: int = 512,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    written: int = 0,
    unseen: float = torch.nan,
    **options: Any,
) -> Case:
    """Random states; every slot that is not written is `unseen`, the trash slot as well.

    Of the `entries` of each block the first `written` are no queries: they were forwarded before.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    rows, real = len(lengths), sizes or [entries] * len(lengths)
    keys = torch.full((rows, kv_heads, capacity, dim), unseen, dtype=dtype)
    values = keys.clone()
    for row, (length, size) in enumerate(zip(lengths, real, strict=True)):
        for store in (keys, values):
            store[row, :, : length + size] = draw(kv_heads, length + size, dim)
    slots = torch.tensor(lengths)
    block_sizes = None if sizes is None else torch.tensor(sizes)
    parents, block = None, Block(slots, block_sizes)
    if tree:

        def parent(node: int) -> int:
            return int(torch.randint(-1, node, (), generator=generator)) if node else -1

        parents = [[parent(node) for node in range(entries - 1)] for _ in range(rows)]
        block = tree_block(slots, torch.tensor(parents).view(rows, -1), block_sizes)
    # As a decoder hands it over: a transposed view.
    query = draw(rows, entries, kv_heads * group, dim).transpose(1, 2)[:, :, written:]
    if written:
        assert block.ancestors is not None
        block = block._replace(ancestors=block.ancestors[:, written:], written=written)
    if options.pop("sinks", False):
        options["sinks"] = torch.randn(kv_heads * group, generator=generator)
    return Case(query, keys, values, block, lengths, real, parents, options, written)


def truth(case: Case, row: int, head: int, entry: int) -> Tensor:
    """What an entry of the block gets, `[dim]` fp64, from nothing but the definition."""
    length, parents = case.lengths[row], case.parents
    path = [entry]
    while path[-1]:
        path.append(path[-1] - 1 if parents is None else parents[row][path[-1] - 1] + 1)
    deep = len(path) - 1
    place = length + deep
    seen = {slot: slot for slot in range(length)}  # slot: position
    seen |= {length + other: place - up for up, other in enumerate(path)}
    if (window := case.options.get("window")) is not None:
        seen = {slot: at for slot, at in seen.items() if at > place - window}
    if (chunk := case.options.get("chunk")) is not None:
        seen = {slot: at for slot, at in seen.items() if at // chunk == place // chunk}
    kv_head = head // (case.query.shape[1] // case.keys.shape[1])
    slots = sorted(seen)
    query = case.query[row, head, entry - case.written].double()
    scores = case.keys[row, kv_head, slots].double() @ query / math.sqrt(len(query))
    if (softcap := case.options.get("softcap")) is not None:
        scores = softcap * (scores / softcap).tanh()
    weights = scores.exp()
    total = weights.sum()
    if (sinks := case.options.get("sinks")) is not None:
        total = total + sinks[head].double().exp()
    return weights / total @ case.values[row, kv_head, slots].double()


def worst(case: Case, output: Tensor, every: int = 1) -> float:
    """The largest error of every `every`-th real entry, the last one included."""
    assert output.shape == case.query.shape
    assert output.isfinite().all(), "padding must come out finite as well"
    largest = 0.0
    for row, size in enumerate(case.sizes):
        first = case.written
        entries = sorted({*range(first, size, every), *([size - 1] if size > first else [])})
        for entry in entries:
            for head in range(case.query.shape[1]):
                error = output[row, head, entry - first].double() - truth(case, row, head, entry)
                largest = max(largest, float(error.abs().max()))
    return largest


WRITTEN = {
    "nothing committed": ([0, 0], 5, {}),
    "one page less one": ([255], 2, {"group": 4}),
    "one page": ([256], 64, {"group": 1}),
    "one page and one": ([257], 65, {"tree": True, "group": 7, "kv_heads": 1}),
    "ragged": ([0, 1, 200, 257], 5, {"group": 2}),
    "nearly even": ([250, 257], 17, {"tree": True, "group": 7}),
    "plain, ragged": ([3, 255, 40], 1, {"group": 8, "kv_heads": 1}),
    "plain, even": ([300, 300], 1, {"group": 7}),
    "padded tree": ([130, 40], 9, {"tree": True, "sizes": [9, 4]}),
    "padded chain, idle row": ([130, 0], 9, {"sizes": [5, 0]}),
    "largest tree": ([77], 128, {"tree": True, "group": 1}),
    "long chain": ([90], 200, {"group": 2, "kv_heads": 1}),
    "first chunk": ([0], 200, {"group": 2, "kv_heads": 1}),
    "window": ([100, 300], 17, {"window": 40}),
    "window inside a tree": ([100], 33, {"tree": True, "window": 4}),
    "window of a long past": ([400], 5, {"tree": True, "window": 100}),
    "chunked": ([126, 190], 17, {"chunk": 64}),
    "chunked tree": ([126], 17, {"tree": True, "chunk": 64}),
    "softcap": ([60, 9], 5, {"tree": True, "softcap": 2.0, "window": 32}),
    "sinks": ([60, 9], 5, {"tree": True, "sinks": True, "group": 4}),
    "sinks, plain": ([60], 1, {"sinks": True, "window": 20}),
    "a level": ([130, 40], 9, {"tree": True, "written": 6}),
    "a level of one": ([70, 70], 6, {"tree": True, "written": 5, "group": 1}),
    "a level behind nothing": ([0, 3], 12, {"tree": True, "written": 8, "group": 7}),
    "a level far behind": ([300, 12], 40, {"tree": True, "written": 33}),
    "a level, even, far behind": ([400, 400], 40, {"tree": True, "written": 33}),
    "a padded level": ([50, 60], 17, {"tree": True, "written": 9, "sizes": [17, 12]}),
    "a level in a window": ([100, 300], 17, {"tree": True, "written": 9, "window": 6}),
    "a level of chunks": ([126, 190], 17, {"tree": True, "written": 4, "chunk": 64}),
}
"""Lengths, entries and options, by what they are about."""
