"""The draft's side of parallel decoding: it reads what is committed, and drafts whenever it can."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...engine.interface import Prompt
from ...engine.runner import ModelRunner
from ...engine.sampling import bad_logits, pick
from ..context import embed, to_device
from ..pruning import match, views
from ..speculative import match_vocabulary, readable
from .board import Board, DraftJob

LONGEST = 1 << 16
"""Bytes of a message through a worker's socket at most."""


def receive(peer: socket.socket) -> list[int]:
    """Waits for a wake-up, or raises `EOFError`; returns the descriptors with it, mostly none."""
    data, descriptors, _, _ = socket.recv_fds(peer, LONGEST, 2)
    if not data:
        raise EOFError
    return descriptors


@dataclass
class DraftRow:
    """Holds one row of the stream: generated tokens, committed ones first, then drafted ones."""

    original: int  # its number on the board
    prompt: int  # tokens of its prompt in the draft's cache
    tokens: list[int] = field(default_factory=list)
    committed: int = 0  # how many of them the target has committed
    fed: int = 0  # how many are in the draft's cache

    def commit(self, new: list[int]) -> bool:
        """Takes `new` as committed, and keeps the drafted tail only if it begins with it; returns
        whether drafted tokens were thrown away."""
        start, ahead = self.committed, self.tokens[self.committed :]
        self.committed += len(new)
        if ahead[: len(new)] == new:
            return False
        same = 0
        while same < len(ahead) and ahead[same] == new[same]:
            same += 1
        self.tokens[start + same :] = new[same:]
        self.fed = min(self.fed, start + same)
        return same < len(ahead)


class DraftServer:
    """Embeds the draft's prompt, prefills what is kept of it, then drafts token by token behind
    what is committed, for a batch of ragged rows.

    Args:
        adapter: the draft model's.
        job: what to draft for.
        descriptor: of the file that holds the board; without it, this process alone does.
    """

    def __init__(self, adapter: Any, job: DraftJob, descriptor: int | None = None) -> None:
        self.adapter, self.job, self.board = adapter, job, Board(job, descriptor)
        self.inputs = to_device(job.inputs, adapter.device)
        self.processing, self.max_ahead = job.processing.copy_to(adapter.device), 0
        self.rows: list[DraftRow] = []  # none until the prompt is prefilled

    @torch.inference_mode()
    def serve(self, peer: socket.socket) -> None:
        """Works until the run ends; whatever `peer` receives says to look at the board."""
        job, handled = self.job, 0
        prompt: Prompt | None = embed(self.adapter, self.inputs, job.prompts, job.copies)
        while not self.board.stopped:
            if (update := int(self.board.update)) > handled:
                handled = update
                if prompt is not None:
                    self._prefill(prompt)
                    prompt = None
                self._handle(update)
            elif any(map(self._is_hungry, self.rows)):
                self._step()
            else:
                receive(peer)
        self.board.over.fill_(1)

    def _prefill(self, prompt: Prompt) -> None:
        """Prefills the prompt with those visual tokens that stand for the target's kept ones."""
        job = self.job
        if job.views:
            draft = views(self.adapter, self.inputs, job.copies)
            parts = [
                match(self.board.visual_indices(row), *pair)
                for row, pair in enumerate(zip(job.views, draft, strict=True))
            ]
            prompt = self.adapter.prune_prompt(prompt, parts)
        self.noise = job.noise.to(self.adapter.device)
        self.runner = ModelRunner(self.adapter, prompt.width + job.limit + 2 * job.max_ahead + 2)
        # The draft's own idea of the first token comes from its prompt, before the target speaks.
        self.opening = self.runner.prefill(prompt, job.chunk).logits
        self.rows = [DraftRow(row, length) for row, length in enumerate(self.runner.lengths)]

    def _handle(self, update: int) -> None:
        """Commits; rows whose draft was wrong are shown anew before the update is acknowledged."""
        self.max_ahead = int(self.board.ahead)
        updates = self.board.updates.tolist()
        stay = [index for index, row in enumerate(self.rows) if updates[row.original] >= update]
        if len(stay) < len(self.rows):
            self.runner.select_rows(stay)
            self.processing.select_rows(stay)
            self.rows = [self.rows[row] for row in stay]
            index = torch.tensor(stay, device=self.opening.device)
            self.opening, self.noise = self.opening[index], self.noise.select_rows(index)
        for row in self.rows:
            is_rollback = row.commit(self.board.committed(row.original, row.committed))
            self.board.show(row.original, row.tokens, is_rollback)
        self.board.acknowledged.fill_(update)

    def _is_hungry(self, row: DraftRow) -> bool:
        """Returns whether a row may still run ahead."""
        text = len(row.tokens)
        return text - row.committed < self.max_ahead and text < self.job.limit

    def _step(self) -> None:
        """Drafts one token further and shows it."""
        start = time.perf_counter_ns()
        tokens, p = self.draft()
        for index, (row, token) in enumerate(zip(self.rows, tokens, strict=True)):
            if not self._is_hungry(row):
                continue
            if p is not None:  # before the token, so that whoever sees the token finds it
                self.board.show_probs(row.original, len(row.tokens), p[index])
            row.tokens.append(token)
            self.board.show(row.original, row.tokens)
        self.board.count(start, time.perf_counter_ns())

    def draft(self) -> tuple[list[int], Tensor | None]:
        """Returns the next token of each row, and what it was drawn from, `[rows, vocab]`, if it
        was drawn."""
        logits = match_vocabulary(self._logits(), self.job.vocab)  # [rows, 1, vocab]
        self.processing.recount([row.tokens for row in self.rows], self.job.vocab)

        def prefix(row: int) -> list[int]:
            return self.job.prompt_ids[self.rows[row].original] + self.rows[row].tokens

        scores = self.processing.scores(logits, prefix=prefix)[:, 0]
        if not self.processing.do_sample:
            return scores.argmax(-1).tolist(), None
        if bool(self.processing.broken(scores).any()):
            raise bad_logits()
        p = self.processing.probabilities(scores)
        lengths = torch.tensor([[len(row.tokens)] for row in self.rows], device=p.device)
        return pick(p, self.noise.uniforms(self.job.purpose, lengths)[:, 0]).tolist(), p

    def _logits(self) -> Tensor:
        """Feeds each row what its cache lacks; returns logits of its next token, `[rows, 1,
        vocab]`."""
        if not all(row.tokens for row in self.rows):
            return self.opening  # rows open together: none has a token before the first update
        # A row that may not run ahead is fed its last token again, at the same position.
        backlog = [row.tokens[row.fed :] or row.tokens[-1:] for row in self.rows]
        for row, tail in zip(self.rows, backlog, strict=True):
            row.fed = len(row.tokens) - len(tail)
        self._rewind()
        width = max(len(tail) for tail in backlog)
        padded = [tail + [0] * (width - len(tail)) for tail in backlog]
        tokens = readable(torch.tensor(padded, device=self.adapter.device), self.adapter)
        forward = self.runner.forward_chain(tokens)
        for row in self.rows:
            row.fed = len(row.tokens)
        self._rewind()
        last = torch.tensor([len(tail) - 1 for tail in backlog], device=tokens.device)
        return forward.logits[torch.arange(len(backlog), device=tokens.device), last][:, None]

    def _rewind(self) -> None:
        self.runner.rewind([row.prompt + row.fed for row in self.rows])
