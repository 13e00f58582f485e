"""The draft's side of parallel decoding: takes orders, drafts whenever it can."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...engine.interface import AdapterLike, Prompt
from ...engine.noise import Purpose, RowNoise
from ...engine.runner import ModelRunner
from ...engine.sampling import Processing, bad_logits, pick
from ..chain_draft import match_vocabulary, readable
from ..context import embed
from ..visual_match import VisualGrids, match, views
from .mailbox import Mailbox, TokenIndices
from .shared_memory import Board
from .wakeup import Wakeup


@dataclass
class DraftRow:
    """Holds one row of the stream.

    Attributes:
        tokens: generated tokens, committed ones first, then drafted ones.
        committed: how many of them the target has committed.
        fed: how many are in the draft's cache.
        rollbacks: how often drafted tokens were thrown away.
    """

    tokens: list[int]
    committed: int = 0
    fed: int = 0
    rollbacks: int = 0

    @property
    def ahead(self) -> int:
        """Drafted tokens that are not committed."""
        return len(self.tokens) - self.committed

    def commit(self, new: list[int]) -> None:
        """Take `new` as committed; keep the drafted tail only if it begins with it."""
        here = self.committed
        self.committed += len(new)
        if self.tokens[here : self.committed] == new:
            return
        same = 0
        while here + same < len(self.tokens) and self.tokens[here + same] == new[same]:
            same += 1
        self.rollbacks += here + same < len(self.tokens)
        self.tokens[here + same :] = new[same:]
        self.fed = min(self.fed, here + same)


class DraftStream:
    """Drafts token by token behind what is committed, for a batch of ragged rows.

    Args:
        adapter: the draft model's adapter.
        prompt: its (pruned) prompt.
        processing: the processed distribution.
        prompt_ids: the target's padded prompt rows, which processors see as prefixes.
        vocab: vocabulary size of the target.
        limit: most new tokens of a row.
        max_ahead: most tokens that a row may be ahead.
        noise: the rows' random numbers, at the first new token.
        chunk: prompt tokens of a row that are prefilled at once; `None` is all of them.
        purpose: of the random numbers that drafts are drawn with.
    """

    def __init__(
        self,
        adapter: AdapterLike,
        prompt: Prompt,
        processing: Processing,
        prompt_ids: list[list[int]],
        vocab: int,
        limit: int,
        max_ahead: int,
        noise: RowNoise,
        chunk: int | None = None,
        purpose: Purpose = Purpose.DRAFT,
    ) -> None:
        self.purpose = purpose
        self.adapter = adapter
        self.processing = processing
        self.prompt_ids = prompt_ids
        self.vocab = vocab
        self.limit = limit
        self.max_ahead = max_ahead
        self.noise = noise
        self.runner = ModelRunner(adapter, prompt.width + limit + 2 * max_ahead + 2)
        # The draft's own idea of the first token comes from its prompt, before the target speaks.
        self.opening = self.runner.prefill(prompt, chunk).logits
        self.prompt_lengths = list(self.runner.lengths)
        self.rows = [DraftRow([]) for _ in range(prompt.rows)]
        self.originals = list(range(prompt.rows))

    def update(self, new: list[list[int]]) -> None:
        """Commit each row's new tokens."""
        for row, tokens in zip(self.rows, new, strict=True):
            row.commit(tokens)

    def select_rows(self, rows: list[int]) -> None:
        """Drop every row but `rows`."""
        self.runner.select_rows(rows)
        self.processing.select_rows(rows)
        self.prompt_lengths = [self.prompt_lengths[row] for row in rows]
        self.rows = [self.rows[row] for row in rows]
        self.originals = [self.originals[row] for row in rows]
        index = torch.tensor(rows, device=self.opening.device)
        self.opening, self.noise = self.opening[index], self.noise.select_rows(index)

    @property
    def wants_more(self) -> bool:
        """Whether some row may still run ahead."""
        return any(self._is_hungry(row) for row in self.rows)

    def _is_hungry(self, row: DraftRow) -> bool:
        return row.ahead < self.max_ahead and len(row.tokens) < self.limit

    def step(self) -> tuple[list[bool], Tensor | None]:
        """Draft one more token for every row that may run ahead.

        Returns:
            Which rows did, and what was drawn from, `[rows, vocab]`, when sampling.
        """
        hungry = [self._is_hungry(row) for row in self.rows]
        logits = match_vocabulary(self._logits(), self.vocab)  # [rows, 1, vocab]
        self.processing.recount([row.tokens for row in self.rows], self.vocab)
        scores = self.processing.scores(logits, prefix=self._prefix)
        p, chosen = self._choose(scores[:, 0])
        for row, token, is_hungry in zip(self.rows, chosen.tolist(), hungry, strict=True):
            if is_hungry:
                row.tokens.append(token)
        return hungry, p

    def _choose(self, scores: Tensor) -> tuple[Tensor | None, Tensor]:
        """Returns what the next tokens are drawn from, `[rows, vocab]`, and they, `[rows]`."""
        if not self.processing.do_sample:
            return None, scores.argmax(-1)
        if bool(self.processing.broken(scores).any()):
            raise bad_logits()
        p = self.processing.probabilities(scores)
        lengths = torch.tensor([[len(row.tokens)] for row in self.rows], device=p.device)
        return p, pick(p, self.noise.uniforms(self.purpose, lengths)[:, 0])

    def _logits(self) -> Tensor:
        """Returns logits of the next token of each row, `[rows, 1, vocab]`."""
        if not all(row.tokens for row in self.rows):
            return self.opening  # rows open together: none has a token before the first update
        # A row that may not run ahead is fed its last token again, at the same place.
        return self._feed([row.tokens[row.fed :] or row.tokens[-1:] for row in self.rows])

    def _prefix(self, row: int) -> list[int]:
        return self.prompt_ids[self.originals[row]] + self.rows[row].tokens

    def _feed(self, backlog: list[list[int]]) -> Tensor:
        """Feed each row what its cache lacks; logits behind the last token of each."""
        starts = [len(row.tokens) - len(tail) for row, tail in zip(self.rows, backlog, strict=True)]
        self._rewind(starts)
        width = max(len(tail) for tail in backlog)
        padded = [tail + [0] * (width - len(tail)) for tail in backlog]
        tokens = readable(torch.tensor(padded, device=self.adapter.device), self.adapter)
        forward = self.runner.forward_chain(tokens)
        for row in self.rows:
            row.fed = len(row.tokens)
        self._rewind([row.fed for row in self.rows])
        last = torch.tensor([len(tail) - 1 for tail in backlog], device=tokens.device)
        return forward.logits[torch.arange(len(backlog), device=tokens.device), last][:, None]

    def _rewind(self, generated: list[int]) -> None:
        self.runner.rewind(
            [prompt + count for prompt, count in zip(self.prompt_lengths, generated, strict=True)]
        )


@dataclass
class DraftJob:
    """All that a worker needs for one run; see `DraftStream` and `prompts.embed`."""

    adapter: Any  # `Adapter`; `None` while a job travels to a process that has it
    inputs: Mapping[str, Any]
    processing: Processing
    prompt_ids: list[list[int]]
    vocab: int
    limit: int
    max_ahead: int
    seeds: list[int]  # of each row, see `RowNoise`
    repack: bool
    prompts: int = 1
    copies: int = 1
    chunk: int | None = None
    purpose: Purpose = Purpose.DRAFT
    views: list[VisualGrids] = field(default_factory=list)  # of each row, if pruned


class DraftServer:
    """Embeds the draft's prompt, prefills what is kept of it, then drafts ahead.

    Args:
        job: what to draft for.
        board: where its tokens appear.
        mail: what the decoder wants of it.
    """

    def __init__(self, job: DraftJob, board: Board, mail: Mailbox) -> None:
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

    def prefill(self, tokens: TokenIndices | None) -> None:
        """Prefill on the kept visual tokens, or on all of them."""
        job, prompt = self.job, self.prompt
        assert prompt is not None
        if tokens is not None:
            draft = views(job.adapter, job.inputs, job.copies)
            prompt = pruned(job.adapter, prompt, tokens, job.views, draft, job.repack)
        seeds = torch.tensor(job.seeds, device=job.adapter.device)
        self.stream = DraftStream(
            job.adapter,
            prompt,
            job.processing,
            job.prompt_ids,
            job.vocab,
            job.limit,
            job.max_ahead,
            RowNoise(seeds, torch.zeros_like(seeds)),
            job.chunk,
            job.purpose,
        )
        self.prompt = None

    def update(self) -> None:
        """Commit; rows whose draft was wrong are shown anew before the update is acknowledged."""
        stream, number = self.stream, self.mail.update
        assert stream is not None
        limit, requested = self.job.max_ahead, self.mail.ahead
        stream.max_ahead = limit if requested is None else min(limit, requested)
        active = self.mail.active.tolist()
        stay = [row for row, original in enumerate(stream.originals) if active[original]]
        if not stay:
            return  # the run ends
        if len(stay) < len(stream.originals):
            stream.select_rows(stay)
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
        self.board.count(start, time.perf_counter_ns())


def pruned(
    adapter: AdapterLike,
    prompt: Prompt,
    tokens: TokenIndices,
    target: Sequence[VisualGrids],
    draft: Sequence[VisualGrids],
    repack: bool = False,
) -> Prompt:
    """Returns the draft's prompt with those visual tokens that stand for the target's kept ones.

    Args:
        adapter: the draft's.
        prompt: the whole of it.
        tokens: of each row.
        target, draft: what each row shows either model.
        repack: number the kept tokens anew, see `ParallelVLM`.
    """
    parts = [
        match(torch.tensor(indices, dtype=torch.long), seen, have)
        for indices, seen, have in zip(tokens, target, draft, strict=True)
    ]
    return adapter.prune_prompt(prompt, parts, repack)
