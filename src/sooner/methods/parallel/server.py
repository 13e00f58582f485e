"""The draft's side of parallel decoding: takes orders, drafts whenever it has none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...decoding.interface import Adapter, Prompt
from ...decoding.sampling import Processing
from ..prompts import embed
from ..visual_match import Views, match, views
from .board import Board
from .mailbox import Kept, Mailbox
from .stream import DraftStream
from .wakeup import Wakeup


@dataclass
class Job:
    """All that a worker needs for one run; see `DraftStream` and `prompts.embed`."""

    adapter: Any  # Adapter; `None` while a job travels to a process that has it
    inputs: Any  # Mapping[str, Any]; a `Parcel` while it travels
    processing: Processing
    prompt_ids: list[list[int]]
    vocab: int
    limit: int
    window: int
    seed: int
    repack: bool
    prompts: int = 1
    copies: int = 1
    chunk: int | None = None
    views: list[Views] = field(default_factory=list)  # what each row shows the target, if pruned


class DraftServer:
    """Embeds the draft's prompt, prefills what is kept of it, then drafts ahead.

    Args:
        job: what to draft for.
        board: where its tokens appear.
        mail: what the decoder wants of it.
    """

    def __init__(self, job: Job, board: Board, mail: Mailbox) -> None:
        self.job = job
        self.board = board
        self.mail = mail
        self.stream: DraftStream | None = None
        self.prompt: Prompt | None = None
        self._seen = 0  # of the mailbox's changes

    @torch.inference_mode()
    def serve(self, wakeup: Wakeup) -> None:
        """Work until told to stop. Between two forwards the mailbox is looked at."""
        self.embed()
        while not self.mail.is_stopped:
            if self.has_mail:
                self.take()
            elif self.is_idle:
                wakeup.wait()
            else:
                self.step()

    @property
    def is_idle(self) -> bool:
        return self.stream is None or not self.stream.wants_more

    @property
    def has_mail(self) -> bool:
        return self.mail.posted != self._seen

    def embed(self) -> None:
        """Encode the pixels; needs nothing from the target."""
        job = self.job
        self.prompt = embed(job.adapter, job.inputs, job.prompts, job.copies)

    def take(self) -> None:
        """Do what the mailbox says by now."""
        self._seen = self.mail.posted
        if self.stream is None and self.mail.may_prefill:
            self.prefill(self.mail.visual())
        if self.stream is not None:
            self.update()

    def prefill(self, kept: Kept | None) -> None:
        """Prefill on the kept visual tokens, or on all of them."""
        job, prompt = self.job, self.prompt
        assert prompt is not None
        if kept is not None:
            draft = views(job.adapter, job.inputs, job.copies)
            prompt = pruned(job.adapter, prompt, kept, job.views, draft, job.repack)
        generator = torch.Generator(device=job.adapter.device).manual_seed(job.seed)
        self.stream = DraftStream(
            job.adapter,
            prompt,
            job.processing,
            job.prompt_ids,
            job.vocab,
            job.limit,
            job.window,
            generator,
            job.chunk,
        )
        self.prompt = None

    def update(self) -> None:
        """Commit; rows whose draft was wrong are shown anew before the update is acknowledged."""
        stream, number = self.stream, self.mail.update
        assert stream is not None
        active = self.mail.active.tolist()
        stay = [row for row, original in enumerate(stream.originals) if active[original]]
        if not stay:
            return  # the run ends
        if len(stay) < len(stream.originals):
            stream.keep_rows(stay)
        before = [row.rollbacks for row in stream.rows]
        stream.update(
            [
                self.mail.read(original, row.committed)
                for original, row in zip(stream.originals, stream.rows, strict=True)
            ]
        )
        for original, row, old in zip(stream.originals, stream.rows, before, strict=True):
            show = self.board.rewrite if row.rollbacks > old else self.board.show
            show(original, row.tokens)
        self.board.acknowledged = number

    def step(self) -> None:
        """Draft one token further and show it."""
        stream = self.stream
        assert stream is not None
        start = time.perf_counter_ns()
        grown, p = stream.step()
        for index, (original, row) in enumerate(zip(stream.originals, stream.rows, strict=True)):
            if not grown[index]:
                continue
            if p is not None:  # before the token, so that whoever sees the token finds it
                self.board.show_probs(original, len(row.tokens) - 1, p[index])
            self.board.show(original, row.tokens)
        self.board.count(1, time.perf_counter_ns() - start)


def pruned(
    adapter: Adapter,
    prompt: Prompt,
    kept: Kept,
    target: Sequence[Views],
    draft: Sequence[Views],
    repack: bool = False,
) -> Prompt:
    """The draft's prompt with those visual tokens that stand for the target's kept ones.

    Args:
        adapter: the draft's.
        prompt: the whole of it.
        kept: of each row.
        target, draft: what each row shows either model.
        repack: number the kept tokens anew, see `ParallelVLM`.
    """
    own = [
        match(torch.tensor(indices, dtype=torch.long), seen, have)
        for indices, seen, have in zip(kept, target, draft, strict=True)
    ]
    return adapter.prune_prompt(prompt, own, repack)
