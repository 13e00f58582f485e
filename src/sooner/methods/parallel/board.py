"""Memory that the decoder of a run and its draft worker share, and what each of them writes there.

Each side replaces what counts now, so that nobody waits as for a full queue, and a worker that did
not look for a thousand rounds finds the newest text. The memory has no name in any file system, so
nothing is left however the processes end, and a container with a small /dev/shm does not limit it.
"""

from __future__ import annotations

import math
import os
import pickle
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import torch
from torch import Tensor

from ...engine.noise import Purpose, RowNoise
from ...engine.sampling import Processing
from ..pruning import VisualGrids

TokenIndices = Sequence[list[int]]
"""For each row, which of the target's visual tokens the draft sees."""

SPANS = 4096
"""Draft forwards whose times are kept, the newest; a caption of 512 tokens has some thousand."""


class WorkerError(Exception):
    """Says why a draft process can't take a run."""


def nameless_file() -> IO[bytes]:
    """Returns a file in memory that is gone with the last process that has it open or mapped."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("sooner"), "w+b")
    return tempfile.TemporaryFile()


def pack(content: object, file: IO[bytes]) -> None:
    """Writes `content` for another process, or raises a `WorkerError` where it can't be pickled."""
    try:
        torch.save(content, file)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise WorkerError(str(error)) from error
    file.flush()


def unpack(descriptor: int) -> Any:
    """Returns what was packed into an open file, its tensors on the CPU and mapped, not copied."""
    path = f"/dev/fd/{descriptor}"
    return torch.load(path, map_location="cpu", mmap=True, weights_only=False)


@dataclass
class DraftJob:
    """All that a worker needs for one run."""

    inputs: Mapping[str, Any]  # the draft's prompts
    processing: Processing  # of the distribution that drafts are drawn from
    prompt_ids: list[list[int]]  # the target's padded rows, which processors see as prefixes
    vocab: int  # of the target
    limit: int  # most new tokens of a row
    max_ahead: int  # most tokens that a row may be ahead
    noise: RowNoise  # of the rows, at their first new token, on the CPU
    prompts: int = 1
    copies: int = 1  # rows of each prompt
    chunk: int | None = None  # prompt tokens of a row that are prefilled at once; `None` is all
    purpose: Purpose = Purpose.DRAFT  # of the random numbers
    views: list[VisualGrids] = field(default_factory=list)  # of the target, if the draft is pruned


class Board:
    """Holds the text of a run as the decoder commits it, and as the worker drafts it further.

    Tokens are written before the length that covers them, and everything before the number of the
    update, so that a reader that takes the number first never sees an unwritten token. A draft
    shrinks only while the worker handles an update, and the decoder trusts a row that the update
    changed only once it is acknowledged. All rows are original ones.

    Args:
        job: of the run, which says how much there may be.
        descriptor: of a file that another process maps, too; without it, only threads share it.
    """

    def __init__(self, job: DraftJob, descriptor: int | None = None) -> None:
        # As many of the draft's distributions are kept as the draft may be ahead: those of tokens
        # that may still be verified. At a vocabulary of 152,000 each of them takes 0.6 MB.
        rows, ring = len(job.noise.seeds), job.max_ahead + 2
        positions, vocab = job.limit + ring, job.vocab if job.processing.do_sample else 0
        visual = max((len(ids) for ids in job.prompt_ids), default=0)
        shapes: list[tuple[int, ...]] = [
            (), (), (), (rows, positions), (rows,), (rows,), (rows, visual), (rows,),
            (), (), (), (), (rows, positions), (rows,), (SPANS, 2),
        ]  # fmt: skip
        counts, floats = [math.prod(shape) for shape in shapes], rows * ring * vocab
        begin = sum(counts) * torch.long.itemsize
        self.size = begin + floats * torch.float32.itemsize
        if descriptor is None:
            memory = torch.zeros(self.size, dtype=torch.uint8)
        else:
            path = f"/dev/fd/{descriptor}"
            memory = torch.from_file(path, shared=True, size=self.size, dtype=torch.uint8)
        words = memory[:begin].view(torch.long).split(counts)
        parts = [part.view(shape) for part, shape in zip(words, shapes, strict=True)]
        # Written by the decoder: number of the last update, of which the first hands over the
        # prompt, tokens that a row may be ahead, and whether the run ends; committed tokens, and
        # the last update of each row, since one that ended gets no more of them.
        self.update, self.ahead, self.stopped = parts[:3]
        self.output, self.output_lengths, self.updates = parts[3:6]
        self.visual, self.visual_counts = parts[6:8]
        # Written by the worker: the last update that it has handled, its forwards and what they
        # took, and whether it is done with the run; its text of each row, committed tokens first.
        self.acknowledged, self.forwards, self.nanoseconds, self.over = parts[8:12]
        self.tokens, self.lengths, self.spans = parts[12:]
        self.probs = memory[begin:].view(torch.float32).view(rows, ring, vocab)

    # The decoder's side: none of these waits for anything.

    def prefill(self, tokens: TokenIndices, ahead: int) -> None:
        """Lets the draft prefill on these visual tokens of each row, where it is pruned, and be
        `ahead` tokens of the text."""
        for row, indices in enumerate(tokens):
            self.visual[row, : len(indices)] = torch.tensor(indices, dtype=torch.long)
            self.visual_counts[row] = len(indices)
        self.updates.fill_(1)
        self.ahead.fill_(ahead)
        self.update.fill_(1)

    def commit(self, new: Mapping[int, tuple[int, list[int]]], ahead: int) -> int:
        """Writes of each row that goes on where its new tokens stand, and those tokens, and lets
        the draft be `ahead` from now on; returns the number of this update."""
        number = int(self.update) + 1
        for row, (position, tokens) in new.items():
            end = min(position + len(tokens), self.output.shape[1])
            if end > position:
                self.output[row, position:end] = torch.tensor(tokens[: end - position])
                self.output_lengths[row] = end
            self.updates[row] = number
        self.ahead.fill_(ahead)
        self.update.fill_(number)
        return number

    def draft(self, row: int, start: int, limit: int) -> list[int]:
        """Returns up to `limit` draft tokens of a row from position `start`."""
        return self.tokens[row, start : min(int(self.lengths[row]), start + limit)].tolist()

    def draft_probs(self, row: int, start: int, count: int) -> Tensor:
        """Returns what those tokens were drawn from, `[count, vocab]`."""
        return self.probs[row, (start + torch.arange(count)) % self.probs.shape[1]]

    def forward_spans(self) -> list[tuple[float, float]]:
        """Returns when the newest draft forwards began and ended, as `time.perf_counter` says."""
        count = int(self.forwards)
        indices = torch.arange(max(count - SPANS, 0), count) % SPANS
        return [(begin / 1e9, end / 1e9) for begin, end in self.spans[indices].tolist()]

    # The worker's side.

    def visual_indices(self, row: int) -> Tensor:
        """Returns visual tokens of a row that `prefill` was given."""
        return self.visual[row, : int(self.visual_counts[row])]

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
        self.spans[self.forwards % SPANS] = torch.tensor([begin, end])
        self.nanoseconds += end - begin
        self.forwards += 1
