"""Memory that the decoder of a run and its draft worker share, and what each of them writes there.

Each side replaces what counts now, so that nobody waits as for a full queue, and a worker that did
not look for a thousand rounds finds the newest text. The memory has no name in any file system, so
nothing is left however the processes end, and a container with a small /dev/shm does not limit it.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...engine.stats.run import Stats

TokenIndices = Sequence[list[int]]
"""For each row, which of the target's visual tokens the draft sees."""

SPANS = 4096
"""Draft forwards whose times are kept, the newest; a caption of 512 tokens has some thousand."""

POSTED, UPDATE, AHEAD, PREFILL, STOPPED = range(5)
"""Positions in `state`, which the decoder writes: changes so far, number of the last update, tokens
that a row may be ahead, and two flags."""
ALL = -1
"""Count of a row's visual tokens where the draft prefills all of them."""
ACKNOWLEDGED, FORWARDS, NANOSECONDS, OVER = range(4)
"""Positions in `counters`, which the worker writes: number of the last update that it has handled,
draft forwards so far, their nanoseconds, and whether it is done with the run."""


def nameless_file() -> int:
    """Returns a descriptor of memory that is gone with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sooner")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def pack(content: object) -> int:
    """Returns the descriptor of a nameless file that holds `content`.

    Raises:
        pickle.PicklingError, AttributeError, TypeError: it can't be pickled.
    """
    descriptor = nameless_file()
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            torch.save(content, file)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unpack(descriptor: int) -> Any:
    """Returns what `pack` was given, its tensors on the CPU and mapped, not copied."""
    path = f"/dev/fd/{descriptor}"
    return torch.load(path, map_location="cpu", mmap=True, weights_only=False)


class Board:
    """Holds the text of a run as the decoder commits it, and as the worker drafts it further.

    Tokens are written before the length that covers them, and everything before the count of
    changes, so that a reader that takes the count first never sees an unwritten token. A draft
    shrinks only while the worker handles an update, and the decoder trusts a row that the update
    changed only once it is acknowledged. All rows are original ones.

    Args:
        rows: of the run.
        positions: generated tokens that a row may hold.
        ring: draft distributions kept for each row, the newest ones.
        vocab: size of a distribution; 0 keeps none (greedy decoding).
        visual: visual tokens of a prompt at most.
        descriptor: of memory that another process maps, too; without it, only threads share it.
    """

    def __init__(
        self,
        rows: int,
        positions: int,
        ring: int,
        vocab: int,
        visual: int,
        descriptor: int | None = None,
    ) -> None:
        shapes: list[tuple[int, ...]] = [
            (5,), (rows, positions), (rows,), (rows,), (rows, visual), (rows,),
            (4,), (rows, positions), (rows,), (SPANS, 2),
        ]  # fmt: skip
        counts, floats = [math.prod(shape) for shape in shapes], rows * ring * vocab
        begin = sum(counts) * torch.long.itemsize
        self.size = begin + floats * torch.float32.itemsize
        if descriptor is not None:
            os.ftruncate(descriptor, self.size)
        memory = mmap.mmap(-1 if descriptor is None else descriptor, self.size)
        words = torch.frombuffer(memory, dtype=torch.long, count=sum(counts)).split(counts)
        parts = [part.view(shape) for part, shape in zip(words, shapes, strict=True)]
        # Written by the decoder: texts and orders.
        self.state, self.output, self.output_lengths, self.dropped = parts[:4]
        self.visual, self.visual_counts = parts[4:6]
        # Written by the worker: its drafts.
        self.counters, self.tokens, self.lengths, self.spans = parts[6:]
        probs = torch.empty(0)
        if floats:
            probs = torch.frombuffer(memory, dtype=torch.float32, count=floats, offset=begin)
        self.probs = probs.view(rows, ring, vocab)

    # The decoder's side: none of these waits for anything.

    def prefill(self, tokens: TokenIndices | None) -> None:
        """Lets the draft prefill on these visual tokens of each row; `None`: on all of them."""
        self.visual_counts.fill_(ALL)
        for row, indices in enumerate(tokens or ()):
            self.visual[row, : len(indices)] = torch.tensor(indices, dtype=torch.long)
            self.visual_counts[row] = len(indices)
        self.state[PREFILL] = 1
        self._post()

    def commit(self, number: int, new: Mapping[int, tuple[int, list[int]]], ahead: int) -> None:
        """Writes update `number`: of each row where its new tokens stand, and those tokens; and how
        many tokens a row may be `ahead` from now on."""
        for row, (position, tokens) in new.items():
            end = min(position + len(tokens), self.output.shape[1])
            if end > position:
                self.output[row, position:end] = torch.tensor(tokens[: end - position])
                self.output_lengths[row] = end
        self.state[UPDATE], self.state[AHEAD] = number, ahead
        self._post()

    def select_rows(self, rows: Sequence[int]) -> None:
        """Lets only these rows go on."""
        dropped = torch.ones_like(self.dropped)
        dropped[list(rows)] = 0
        self.dropped.copy_(dropped)
        self._post()

    def stop(self) -> None:
        """Ends the run."""
        self.state[STOPPED] = 1
        self._post()

    def _post(self) -> None:
        self.state[POSTED] += 1

    @property
    def acknowledged(self) -> int:
        return int(self.counters[ACKNOWLEDGED])

    @property
    def is_over(self) -> bool:
        return bool(self.counters[OVER])

    def forwards(self) -> tuple[int, int]:
        """Returns draft forwards so far, and the nanoseconds that they took."""
        return int(self.counters[FORWARDS]), int(self.counters[NANOSECONDS])

    def draft(self, row: int, start: int, limit: int) -> list[int]:
        """Returns up to `limit` draft tokens of a row from position `start`."""
        return self.tokens[row, start : min(int(self.lengths[row]), start + limit)].tolist()

    def draft_probs(self, row: int, start: int, count: int) -> Tensor:
        """Returns what those tokens were drawn from, `[count, vocab]`."""
        return self.probs[row, (start + torch.arange(count)) % self.probs.shape[1]]

    def forward_spans(self) -> list[tuple[float, float]]:
        """Returns when the newest draft forwards began and ended, as `time.perf_counter` says."""
        count, _ = self.forwards()
        indices = torch.arange(max(count - SPANS, 0), count) % SPANS
        return [(begin / 1e9, end / 1e9) for begin, end in self.spans[indices].tolist()]

    def report(self, stats: Stats) -> None:
        """Puts the worker's counts into the statistics of a run."""
        forwards, nanoseconds = self.forwards()
        stats.draft_forwards, stats.draft_forward_seconds = forwards, nanoseconds / 1e9
        if forwards:
            stats.draft_seconds = [nanoseconds / 1e9 / forwards]

    # The worker's side.

    def visual_indices(self) -> TokenIndices | None:
        """Returns what `prefill` was given."""
        counts = self.visual_counts.tolist()
        if ALL in counts:
            return None
        return [self.visual[row, :count].tolist() for row, count in enumerate(counts)]

    def committed(self, row: int, start: int) -> list[int]:
        """Returns the committed tokens of a row from position `start` on."""
        return self.output[row, start : int(self.output_lengths[row])].tolist()

    def show(self, row: int, tokens: list[int], is_rewritten: bool = False) -> None:
        """Replaces the draft of a row; unless it `is_rewritten`, its beginning has not changed."""
        if is_rewritten:
            self.lengths[row] = 0
        same = min(int(self.lengths[row]), len(tokens))
        if same < len(tokens):
            self.tokens[row, same : len(tokens)] = torch.tensor(tokens[same:])
        self.lengths[row] = len(tokens)

    def show_probs(self, row: int, position: int, p: Tensor) -> None:
        """Keeps what the token at `position` was drawn from, `[vocab]`."""
        self.probs[row, position % self.probs.shape[1]] = p

    def count(self, begin: int, end: int) -> None:
        """Adds a draft forward, which began and ended at these nanoseconds."""
        self.spans[self.counters[FORWARDS] % SPANS] = torch.tensor([begin, end])
        self.counters[NANOSECONDS] += end - begin
        self.counters[FORWARDS] += 1
