"""The draft's side of parallel decoding: it reads what is committed, and drafts whenever it can."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ...engine.interface import Prompt
from ...engine.noise import Purpose, RowNoise
from ...engine.runner import ModelRunner
from ...engine.sampling import Processing, bad_logits, pick
from ..context import embed, to_device
from ..pruning import VisualGrids, match, views
from ..speculative import match_vocabulary, readable
from .board import ACKNOWLEDGED, AHEAD, OVER, POSTED, PREFILL, STOPPED, UPDATE, Board


@dataclass
class DraftJob:
    """All that a worker needs for one run.

    Attributes:
        adapter: the draft model's; `None` while a job travels to a process that has it.
        inputs: the draft's prompts, and `prompts`, `copies`: how many, each repeated how often.
        processing: of the distribution that drafts are drawn from.
        prompt_ids: the target's padded prompt rows, which processors see as prefixes.
        vocab: size of the target's vocabulary.
        limit, max_ahead: most new tokens of a row, and most that it may be ahead.
        seeds, purpose: of the random numbers that drafts are drawn with, see `RowNoise`.
        chunk: prompt tokens of a row that are prefilled at once; `None` is all of them.
        views: what each row shows the target, if the draft is pruned.
    """

    adapter: Any
    inputs: Mapping[str, Any]
    processing: Processing
    prompt_ids: list[list[int]]
    vocab: int
    limit: int
    max_ahead: int
    seeds: list[int]
    prompts: int = 1
    copies: int = 1
    chunk: int | None = None
    purpose: Purpose = Purpose.DRAFT
    views: list[VisualGrids] = field(default_factory=list)

    def board(self, rows: int, descriptor: int | None = None) -> Board:
        """Returns the board of a run over `rows` rows.

        As many of the draft's distributions are kept as the draft may be ahead: those of tokens
        that may still be verified. At a vocabulary of 152,000 each of them takes 0.6 MB.
        """
        ahead = self.max_ahead + 2
        vocab = self.vocab if self.processing.do_sample else 0
        visual = max((len(ids) for ids in self.prompt_ids), default=0)
        return Board(rows, self.limit + ahead, ahead, vocab, visual, descriptor)

    def on(self, adapter: Any) -> DraftJob:
        """Returns the job of the process that has `adapter`, with tensors on its device."""
        inputs = to_device(self.inputs, adapter.device)
        processing = self.processing.copy_to(adapter.device)
        return replace(self, adapter=adapter, inputs=inputs, processing=processing)


@dataclass
class DraftRow:
    """Holds one row of the stream.

    Attributes:
        original: its number on the board.
        prompt: tokens of its prompt in the draft's cache.
        tokens: generated tokens, committed ones first, then drafted ones.
        committed: how many of them the target has committed.
        fed: how many are in the draft's cache.
    """

    original: int
    prompt: int
    tokens: list[int] = field(default_factory=list)
    committed: int = 0
    fed: int = 0

    @property
    def ahead(self) -> int:
        """Drafted tokens that are not committed."""
        return len(self.tokens) - self.committed

    def commit(self, new: list[int]) -> bool:
        """Takes `new` as committed, and keeps the drafted tail only if it begins with it; returns
        whether drafted tokens were thrown away."""
        start = self.committed
        self.committed += len(new)
        if self.tokens[start : self.committed] == new:
            return False
        same = 0
        while start + same < len(self.tokens) and self.tokens[start + same] == new[same]:
            same += 1
        is_rollback = start + same < len(self.tokens)
        self.tokens[start + same :] = new[same:]
        self.fed = min(self.fed, start + same)
        return is_rollback


class DraftServer:
    """Embeds the draft's prompt, prefills what is kept of it, then drafts token by token behind
    what is committed, for a batch of ragged rows.

    Args:
        job: what to draft for.
        board: where the text is, and the drafts go.
    """

    def __init__(self, job: DraftJob, board: Board) -> None:
        self.job, self.board = job, board
        self.adapter, self.processing = job.adapter, job.processing
        self.max_ahead = job.max_ahead
        self.rows: list[DraftRow] = []  # none until the prompt is prefilled

    @torch.inference_mode()
    def serve(self, wait: Callable[[], object]) -> None:
        """Works until the run ends; `wait` returns when there may be something new on the board."""
        job, posted = self.job, 0
        prompt: Prompt | None = embed(job.adapter, job.inputs, job.prompts, job.copies)
        while not (state := self.board.state.tolist())[STOPPED]:
            if state[POSTED] != posted:
                posted = state[POSTED]
                if prompt is not None and state[PREFILL]:
                    self._prefill(prompt)
                    prompt = None
                if prompt is None:
                    self._update(*self.board.state[[UPDATE, AHEAD]].tolist())
            elif any(map(self._is_hungry, self.rows)):
                self._step()
            else:
                wait()
        self.board.counters[OVER] = 1

    def _prefill(self, prompt: Prompt) -> None:
        """Prefills the prompt with those visual tokens that stand for the target's kept ones."""
        job, indices = self.job, self.board.visual_indices()
        if indices is not None:
            draft = views(job.adapter, job.inputs, job.copies)
            parts = [
                match(torch.tensor(row, dtype=torch.long), target, have)
                for row, target, have in zip(indices, job.views, draft, strict=True)
            ]
            prompt = job.adapter.prune_prompt(prompt, parts)
        seeds = torch.tensor(job.seeds, device=job.adapter.device)
        self.noise = RowNoise(seeds, torch.zeros_like(seeds))
        self.runner = ModelRunner(job.adapter, prompt.width + job.limit + 2 * job.max_ahead + 2)
        # The draft's own idea of the first token comes from its prompt, before the target speaks.
        self.opening = self.runner.prefill(prompt, job.chunk).logits
        self.rows = [DraftRow(row, length) for row, length in enumerate(self.runner.lengths)]

    def _update(self, number: int, ahead: int) -> None:
        """Commits; rows whose draft was wrong are shown anew before the update is acknowledged."""
        self.max_ahead = min(self.job.max_ahead, ahead) if number else self.job.max_ahead
        dropped = self.board.dropped.tolist()
        stay = [index for index, row in enumerate(self.rows) if not dropped[row.original]]
        if not stay:
            return  # the run ends
        if len(stay) < len(self.rows):
            self.runner.select_rows(stay)
            self.processing.select_rows(stay)
            self.rows = [self.rows[row] for row in stay]
            index = torch.tensor(stay, device=self.opening.device)
            self.opening, self.noise = self.opening[index], self.noise.select_rows(index)
        for row in self.rows:
            is_rollback = row.commit(self.board.committed(row.original, row.committed))
            self.board.show(row.original, row.tokens, is_rollback)
        self.board.counters[ACKNOWLEDGED] = number

    def _is_hungry(self, row: DraftRow) -> bool:
        """Returns whether a row may still run ahead."""
        return row.ahead < self.max_ahead and len(row.tokens) < self.job.limit

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
        scores = self.processing.scores(logits, prefix=self._prefix)[:, 0]
        if not self.processing.do_sample:
            return scores.argmax(-1).tolist(), None
        if bool(self.processing.broken(scores).any()):
            raise bad_logits()
        p = self.processing.probabilities(scores)
        lengths = torch.tensor([[len(row.tokens)] for row in self.rows], device=p.device)
        return pick(p, self.noise.uniforms(self.job.purpose, lengths)[:, 0]).tolist(), p

    def _prefix(self, row: int) -> list[int]:
        return self.job.prompt_ids[self.rows[row].original] + self.rows[row].tokens

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
