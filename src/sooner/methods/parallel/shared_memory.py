"""Where a draft worker shows its tokens: plain arrays in memory that processes share."""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import tempfile
import weakref
from multiprocessing import reduction
from typing import Any

import torch
from torch import Tensor

from ...engine.stats.run import Stats

ALIGNMENT = 64
CPU = torch.device("cpu")
SPANS = 4096
"""Draft forwards whose times are kept, the newest; a caption of 512 tokens has some thousand."""

Shape = tuple[tuple[int, ...], torch.dtype]


class SharedFile:
    """Holds memory behind a file descriptor, for a process that inherits no mappings.

    It has no name in any file system, so it is gone with the last process that holds it, however
    that ends. Pickled as an argument of a spawned process it arrives as the same memory.

    Args:
        descriptor: of such memory; `None` makes some, empty.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self.descriptor = _nameless() if descriptor is None else descriptor
        weakref.finalize(self, os.close, self.descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self.descriptor),)

    def reach(self, size: int) -> None:
        """Make it `size` bytes long if it is shorter; what it holds stays."""
        if os.fstat(self.descriptor).st_size < size:
            os.ftruncate(self.descriptor, size)


def _nameless() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sooner")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _received(descriptor: Any) -> SharedFile:
    return SharedFile(descriptor.detach())


class Arena:
    """One mapping, handed out piece by piece; pages cost nothing until they are written.

    No file system knows of it, so nothing is left however the processes end.

    Args:
        size: in bytes.
        file: what is mapped; `None` is memory that only forked processes can share.
    """

    def __init__(self, size: int, file: SharedFile | None = None) -> None:
        self.size, self.file = size, file
        self.used = 0
        if file is not None:
            file.reach(size)
        self.memory = mmap.mmap(-1 if file is None else file.descriptor, size)

    def reaching(self, size: int) -> Arena:
        """This arena if it has `size` bytes, else a larger one over the same file."""
        return self if size <= self.size else Arena(size, self.file)

    def reset(self) -> None:
        """Hand out from the beginning again; who holds earlier pieces must be done with them."""
        self.used = 0

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Returns the next piece as a tensor, with whatever it holds.

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
    """Returns the next piece of an arena; without one, zeros in memory of this process alone."""
    return torch.zeros(shape, dtype=dtype) if arena is None else arena.take(shape, dtype)


def room(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Returns bytes that a piece takes."""
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


class Parcel:
    """Something that travels through an arena: pickled, but for its tensors, which lie beside it.

    Args:
        content: what travels.

    Raises:
        pickle.PicklingError, AttributeError, TypeError: it can't be pickled.
    """

    def __init__(self, content: object) -> None:
        file = io.BytesIO()
        packer = _Packer(file)
        packer.dump(content)
        self.tensors = packer.tensors
        shapes: list[Shape] = [(tuple(tensor.shape), tensor.dtype) for tensor in self.tensors]
        self.text = pickle.dumps((shapes, file.getvalue()))

    @property
    def room(self) -> int:
        """Bytes of an arena that it takes."""
        tensors = sum(room(tuple(tensor.shape), tensor.dtype) for tensor in self.tensors)
        return room((len(self.text),), torch.uint8) + tensors

    def lay_down(self, arena: Arena) -> int:
        """Put it into the next pieces of an arena.

        Returns:
            Bytes of its text, for `open`.
        """
        text = torch.frombuffer(bytearray(self.text), dtype=torch.uint8)
        for source in (text, *self.tensors):
            arena.take(tuple(source.shape), source.dtype).copy_(source.detach())
        return len(self.text)

    @staticmethod
    def open(arena: Arena, size: int, device: torch.device = CPU) -> Any:
        """Returns what lies in the next pieces of an arena; on a CPU its tensors are those pieces.

        Args:
            size: bytes of the text.
            device: where its tensors are wanted.
        """
        shapes, text = pickle.loads(arena.take((size,), torch.uint8).numpy().tobytes())
        opener = _Opener(io.BytesIO(text))
        opener.tensors = [arena.take(*shape).to(device) for shape in shapes]
        return opener.load()


class _Packer(pickle.Pickler):
    """Leaves out plain tensors, whose numbers it notes instead."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not Tensor or obj.layout is not torch.strided or obj.is_quantized:
            return None
        self.tensors.append(obj)
        return len(self.tensors) - 1


class _Opener(pickle.Unpickler):
    tensors: list[Tensor]

    def persistent_load(self, number: int) -> Tensor:
        return self.tensors[number]


class Board:
    """Holds drafted tokens by original row and position, written by the worker, read by the
    decoder.

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
        spans: when the newest of them began and ended, nanoseconds on `time.perf_counter_ns`, which
            processes of one machine share; `[SPANS, 2]`, used in turn.
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
        self.tokens, self.lengths, self.counters, self.spans, self.probs = (
            take(arena, *shape) for shape in shapes
        )

    @staticmethod
    def _shapes(rows: int, positions: int, ring: int, vocab: int) -> list[Shape]:
        ids = torch.long
        arrays: list[Shape] = [((rows, positions), ids), ((rows,), ids), ((4,), ids)]
        return [*arrays, ((SPANS, 2), ids), ((rows, ring, vocab), torch.float32)]

    @classmethod
    def room(cls, rows: int, positions: int, ring: int, vocab: int) -> int:
        """Returns bytes that a board takes of an arena."""
        return sum(room(*shape) for shape in cls._shapes(rows, positions, ring, vocab))

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
        """Returns up to `limit` tokens of row `row` from position `start`."""
        length = int(self.lengths[row])
        return self.tokens[row, start : min(length, start + limit)].tolist()

    def read_probs(self, row: int, start: int, count: int) -> Tensor:
        """Returns what those tokens were drawn from, `[count, vocab]`."""
        places = (start + torch.arange(count)) % self.probs.shape[1]
        return self.probs[row, places]

    @property
    def acknowledged(self) -> int:
        return int(self.counters[0])

    @acknowledged.setter
    def acknowledged(self, update: int) -> None:
        self.counters[0] = update

    def count(self, began: int, ended: int) -> None:
        """Add a draft forward to the worker's tally; times as in `spans`."""
        self.spans[self.forwards % SPANS] = torch.tensor([began, ended])
        self.counters[2] += ended - began
        self.counters[1] += 1

    def forward_spans(self) -> list[tuple[float, float]]:
        """When the newest draft forwards began and ended, seconds on `time.perf_counter`."""
        count = self.forwards
        places = torch.arange(max(count - SPANS, 0), count) % SPANS
        return [(begin / 1e9, end / 1e9) for begin, end in self.spans[places].tolist()]

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
