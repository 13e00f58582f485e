"""Partial results of one layer on a CPU, where they are added up, and their stairs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from ...plane import Plane, pick, span
from ..partial import Partial, States

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def supports(states: States) -> bool:
    """Returns whether the kernel takes these states: CPU, a dtype of `DTYPES`, one head size for
    all.
    """
    parts = (states.queries, states.keys, states.values)
    return all(
        part.device.type == "cpu"
        and part.dtype == states.queries.dtype
        and part.shape[-1] == states.queries.shape[-1]
        and part.stride(-1) == 1
        for part in parts
    ) and (states.queries.dtype in DTYPES)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    scale: float,
    causal: bool = False,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns attention and its log-sum-exp; strides of any kind but the last dimension's are free.

    Args:
        queries: `[batch, heads, queries, head_dim]`, at least one query.
        keys, values: `[batch, heads, keys, head_dim]`, at least one key.
        causal: query `i` sees the keys up to `i`, whatever their number.
        mask: added to the scores, in the dtype of the queries, `[batch, heads, queries, keys]` or
            what expands to it. Where a query sees nothing, the results mean nothing.

    Returns:
        output `[batch, heads, queries, head_dim]` and log-sum-exp `[batch, heads, queries]`.
    """
    if mask is not None:
        mask = mask.expand(*queries.shape[:3], keys.shape[2])
    output, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, 0.0, causal, attn_mask=mask, scale=scale
    )
    return output, lse


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the mask that leaves only what is seen."""
    return torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, -torch.inf)


@dataclass(frozen=True, eq=False)
class HeadStates:
    """The states that one head has in a plane, without the queries that see no key.

    Attributes:
        queries: `[queries, head_dim]`.
        keys, values: by rank, `[keys, head_dim]`.
        frontier: of each query, at least 0, never falling, `[queries]`.
        ramp: whether the frontier rises by one from query to query.
        scale: factor of the scores.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    frontier: Tensor
    ramp: bool
    scale: float

    def __len__(self) -> int:
        return len(self.frontier)

    def stairs(self, which: slice | Tensor, counts: Tensor, keys: slice) -> Stairs:
        """Attends from some of the queries to the first `counts` of some of the keys."""
        seen, values = self.keys[keys], self.values[keys]
        if keys.step is not None:  # rows that lie apart would be read so many times
            seen, values = seen.contiguous(), values.contiguous()
        queries = self.queries[which]
        return Stairs(queries[None, None], seen[None, None], values[None, None], counts, self.scale)


def parts(
    states: States, plane: Plane, heads: Tensor, into: Partial
) -> Iterator[tuple[int, HeadStates, Accumulator]]:
    """Place among `heads`, states and canvas of each head; what is painted ends up in `into`."""
    blind = int((plane.frontier < 0).sum())
    slots, frontier = plane.queries[blind:], plane.frontier[blind:]
    if not len(slots) or not len(plane.keys):
        return
    ramp = bool((frontier.diff() == 1).all())
    read, keys, values = -1, states.keys, states.values
    for place, head in enumerate(heads.tolist()):
        if read != head // states.group:
            read = head // states.group
            keys = pick(states.keys[read], plane.keys)
            values = pick(states.values[read], plane.keys)
        part = HeadStates(
            pick(states.queries[head], slots), keys, values, frontier, ramp, states.scale
        )
        with canvas(into, slice(head, head + 1), slots) as blank:
            yield place, part, Accumulator(blank.output[0], blank.lse[0])


Piece = tuple[slice, Tensor, Tensor]

"""Queries, their output `[batch, heads, queries, head_dim]` and `lse [batch, heads, queries]`."""

SPLIT = 1024  # keys in front of a chunk from which a call of their own, without a mask, pays

FLAT = 96  # queries with equal counts that are worth a call of their own


@dataclass(frozen=True, eq=False)
class Stairs:
    """States whose queries see the first `counts` keys.

    Attributes:
        queries: `[batch, heads, queries, head_dim]`.
        keys, values: `[batch, heads, keys, head_dim]`.
        counts: keys that each query sees, at least 1, never falling, `[queries]`.
        scale: factor of the scores.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    counts: Tensor
    scale: float

    def climb(self, rows: int) -> Iterator[Piece]:
        """Attention in chunks of about `rows` queries; every query is in one of them."""
        if not len(self.counts):
            return
        starts = starts_of(self.counts, rows)
        ends = [*starts[1:], len(self.counts)]
        low = self.counts[starts].tolist()
        high = self.counts[[end - 1 for end in ends]].tolist()
        memory = _Memory(self.queries.dtype)
        for start, end, minimum, maximum in zip(starts, ends, low, high, strict=True):
            chunk = slice(start, end)
            if minimum == maximum:
                yield chunk, *self._attend(chunk, slice(0, maximum))
            else:
                yield chunk, *self._tread(chunk, minimum, maximum, memory)

    def _tread(
        self, chunk: slice, minimum: int, maximum: int, memory: _Memory
    ) -> tuple[Tensor, Tensor]:
        """Returns a chunk with steps in it: the keys that all see, and those at the steps."""
        # One key that all see stands at the steps too, so that no query is blind there.
        counts, first = self.counts[chunk], minimum - 1
        if maximum - first == len(counts) and bool((counts.diff() == 1).all()):
            output, lse = self._attend(chunk, slice(first, maximum), causal=True)
        else:
            first = first if minimum > SPLIT else 0
            mask = memory.mask(counts - first, maximum - first)
            output, lse = self._attend(chunk, slice(first, maximum), mask=mask)
        if first:
            before, seen = self._attend(chunk, slice(0, first))
            front = Accumulator(before.float(), seen)
            front.merge(output, lse)
            return front.output, front.lse
        return output, lse

    def _attend(
        self, chunk: slice, seen: slice, causal: bool = False, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        queries = self.queries[..., chunk, :]
        keys, values = self.keys[..., seen, :], self.values[..., seen, :]
        return attend(queries, keys, values, self.scale, causal, mask)


class _Memory:
    """The last mask, which evenly spaced steps need again."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.steps: Tensor | None = None
        self.last_mask = torch.empty(0)

    def mask(self, steps: Tensor, keys: int) -> Tensor:
        """Returns additive mask of queries that see the first `steps` keys."""
        if self.steps is None or not torch.equal(self.steps, steps):
            self.steps = steps
            self.last_mask = additive(torch.arange(keys) < steps[:, None], self.dtype)
        return self.last_mask


def starts_of(counts: Tensor, rows: int) -> list[int]:
    """Returns where chunks begin: at the steps if they are far apart, else every `rows` queries."""
    total = len(counts)
    steps = (counts.diff() > 0).nonzero()[:, 0] + 1
    if (len(steps) + 1) * FLAT > total:
        return list(range(0, total, rows))
    edges = [0, *steps.tolist(), total]
    longest = max(rows, 1024)
    return [start for a, b in pairwise(edges) for start in range(a, b, longest)]


@dataclass(frozen=True, eq=False)
class Accumulator:
    """Accumulates attention of some queries over the keys seen so far.

    Attributes:
        output: `[..., queries, head_dim]`, fp32; zero where nothing was seen.
        lse: log-sum-exp, `[..., queries]`, fp32; minus infinity where nothing was seen.
    """

    output: Tensor
    lse: Tensor

    def rows(self, which: slice | Tensor) -> Accumulator:
        """Some of the queries; a view if they are given as a slice."""
        return Accumulator(self.output[..., which, :], self.lse[..., which])

    def put(self, output: Tensor, lse: Tensor) -> None:
        """Replace what is there."""
        self.output.copy_(output)
        self.lse.copy_(lse)

    def merge(self, output: Tensor, lse: Tensor) -> None:
        """Merge attention over other keys. Each query has seen a key, here or there."""
        weight = torch.sigmoid(lse - self.lse)[..., None]
        self.output.lerp_(output.float(), weight)
        self.lse.copy_(torch.logaddexp(self.lse, lse))

    def classes(self, first: int, step: int, rows: int, width: int) -> Accumulator:
        """Returns a view of `width` neighbouring classes, see `classes`."""
        lse = self.lse.as_strided(
            (width, rows),
            (self.lse.stride(0), step * self.lse.stride(0)),
            self.lse.storage_offset() + first * self.lse.stride(0),
        )
        return Accumulator(classes(self.output, first, step, rows, width), lse)


def classes(states: Tensor, first: int, step: int, rows: int, width: int) -> Tensor:
    """Returns every `step`-th row from `first`, from `first + 1`, ...: `[width, rows, head_dim]`, a
    view.

    Args:
        states: `[tokens, head_dim]`, with `tokens > first + width - 1 + step * (rows - 1)`.
    """
    along = states.stride(0)
    return states.as_strided(
        (width, rows, states.shape[1]),
        (along, step * along, 1),
        states.storage_offset() + first * along,
    )


@contextmanager
def canvas(into: Partial, heads: slice, slots: Tensor) -> Iterator[Accumulator]:
    """Yields a blank canvas `[heads, queries]` whose content ends up in `into`.

    It is a part of `into` itself if nothing stands there yet.
    """
    which = span(slots)
    if which is not None and bool((into.lse[heads, which] == -torch.inf).all()):
        yield Accumulator(into.output[heads, which], into.lse[heads, which])
        return
    shape = (into.lse[heads].shape[0], len(slots))
    blank = Accumulator(
        into.output.new_zeros(*shape, into.output.shape[-1]),
        into.lse.new_full(shape, -torch.inf),
    )
    yield blank
    before = Accumulator(
        pick(into.output[heads], slots), pick(into.lse[heads, :, None], slots)[..., 0]
    )
    before.merge(blank.output, blank.lse)
    if which is None:
        into.output[heads, slots] = before.output
        into.lse[heads, slots] = before.lse
