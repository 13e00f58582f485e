"""Where a draft worker shows its tokens: plain arrays in memory that processes share."""

from __future__ import annotations

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...decoding.stats import Stats

ALIGNMENT = 64

Shape = tuple[tuple[int, ...], torch.dtype]


class Arena:
    """One anonymous mapping, handed out piece by piece; pages cost nothing until they are written.

    There is no file behind it, so nothing is left however the processes end.

    Args:
        size: in bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self.memory = mmap.mmap(-1, size)

    def reset(self) -> None:
        """Hand out from the beginning again; who holds earlier pieces must be done with them."""
        self.used = 0

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """The next piece as a tensor, with whatever it holds.

        The same calls after `reset` give the same pieces in every process that shares the arena.

        Raises:
            MemoryError: it is full.
        """
        begin = self.used
        self.used += room(shape, dtype)
        if self.used > self.size:
            raise MemoryError(f"an arena of {self.size} bytes has no room for {self.used}")
        count = math.prod(shape)
        if not count:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=begin).view(shape)


def take(arena: Arena | None, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The next piece of an arena; without one, zeros in memory of this process alone."""
    return torch.zeros(shape, dtype=dtype) if arena is None else arena.take(shape, dtype)


def room(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Bytes that a piece takes."""
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Parcel:
    """Inputs of a model whose tensors lie in an arena, as they travel.

    Attributes:
        shapes: shape and type of each tensor, in the order in which they were laid down.
        others: what is no tensor.
    """

    shapes: dict[str, Shape]
    others: dict[str, Any]

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> Parcel:
        """What `inputs` will be; nothing is laid down yet."""
        tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        return cls(
            {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()},
            {name: value for name, value in inputs.items() if name not in tensors},
        )

    @property
    def room(self) -> int:
        """Bytes that it takes."""
        return sum(room(*told) for told in self.shapes.values())

    def open(self, arena: Arena) -> dict[str, Any]:
        """The inputs, at the next pieces of the arena."""
        return {name: arena.take(*told) for name, told in self.shapes.items()} | self.others


class Board:
    """Drafted tokens by original row and position, written by the worker, read by the decoder.

    A token is written before the length that covers it, so a reader that takes the length first
    never sees an unwritten token. Lengths shrink only while the worker handles an update, and the
    reader trusts a row that the update changed only once it is acknowledged.

    Args:
        rows: original rows.
        positions: generated tokens that a row may hold.
        ring: draft distributions kept for each row, the newest ones.
        vocab: size of a distribution; 0 keeps none (greedy decoding).
        arena: memory that both sides see; it may hold anything until `clear`. Without one, the
            arrays are this process's own, and empty.

    Attributes:
        acknowledged: number of the last update that the worker has handled.
        forwards, nanoseconds: draft forwards so far, and the time that they took.
    """

    def __init__(
        self,
        rows: int,
        positions: int,
        ring: int,
        vocab: int,
        arena: Arena | None = None,
    ) -> None:
        shapes = self._shapes(rows, positions, ring, vocab)
        self.tokens, self.lengths, self.counters, self.probs = (take(arena, *one) for one in shapes)

    @staticmethod
    def _shapes(rows: int, positions: int, ring: int, vocab: int) -> list[Shape]:
        ids = torch.long
        arrays: list[Shape] = [((rows, positions), ids), ((rows,), ids), ((4,), ids)]
        return [*arrays, ((rows, ring, vocab), torch.float32)]

    @classmethod
    def room(cls, rows: int, positions: int, ring: int, vocab: int) -> int:
        """Bytes that a board takes of an arena."""
        return sum(room(*told) for told in cls._shapes(rows, positions, ring, vocab))

    def clear(self) -> None:
        """Show nothing, as at the beginning."""
        self.lengths.zero_()
        self.counters.zero_()

    def show(self, row: int, tokens: list[int]) -> None:
        """Replace what row `row` shows."""
        old = int(self.lengths[row])
        same = min(old, len(tokens))
        if same < len(tokens):
            self.tokens[row, same : len(tokens)] = torch.tensor(tokens[same:])
        self.lengths[row] = len(tokens)

    def rewrite(self, row: int, tokens: list[int]) -> None:
        """Replace what row `row` shows where it may differ from before."""
        self.lengths[row] = 0
        self.show(row, tokens)

    def show_probs(self, row: int, position: int, p: Tensor) -> None:
        """Keep what the token at `position` was drawn from, `[vocab]`."""
        self.probs[row, position % self.probs.shape[1]] = p

    def read(self, row: int, start: int, limit: int) -> list[int]:
        """Up to `limit` tokens of row `row` from position `start`."""
        length = int(self.lengths[row])
        return self.tokens[row, start : min(length, start + limit)].tolist()

    def read_probs(self, row: int, start: int, count: int) -> Tensor:
        """What those tokens were drawn from, `[count, vocab]`."""
        places = (start + torch.arange(count)) % self.probs.shape[1]
        return self.probs[row, places]

    @property
    def acknowledged(self) -> int:
        return int(self.counters[0])

    @acknowledged.setter
    def acknowledged(self, update: int) -> None:
        self.counters[0] = update

    def count(self, forwards: int, nanoseconds: int) -> None:
        """Add to the worker's tally."""
        self.counters[2] += nanoseconds
        self.counters[1] += forwards

    @property
    def forwards(self) -> int:
        return int(self.counters[1])

    @property
    def nanoseconds(self) -> int:
        return int(self.counters[2])

    def report(self, stats: Stats) -> None:
        """Put the worker's tally into the statistics of a run."""
        stats.draft_forwards = self.forwards
        stats.draft_forward_seconds = self.nanoseconds / 1e9
        if self.forwards:
            stats.draft_seconds = [stats.draft_forward_seconds / self.forwards]
