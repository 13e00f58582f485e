"""A draft model that writes a chain: its own prompt, its own cache, its own rollback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..decoding.interface import AdapterLike, Drafter, Outcome, Prompt
from ..decoding.noise import Purpose
from ..decoding.runner import Forward, ModelRunner
from ..decoding.sampling import pick
from ..decoding.tree import Paths, Tree
from .calls import to_device
from .context import Context, embed
from .sizing.chain import DraftLength
from .sizing.costs import RoundCost


class ChainDrafter(Drafter):
    """Drafts token by token with a second model, after the target's forward.

    The draft's cache holds its own prompt and the generated tokens it was fed. After each round
    it keeps those that were committed and is fed the rest together with the newest token, so rows
    whose drafts were all accepted, or that decoded plainly for a while, simply catch up.

    Args:
        adapter: the draft model's adapter.
        inputs: the draft's own processed inputs.
        context: the run.
        draft_length: chooses the draft length.
    """

    def __init__(
        self,
        adapter: AdapterLike,
        inputs: Mapping[str, Any],
        context: Context,
        draft_length: DraftLength,
    ) -> None:
        self.adapter = adapter
        self.inputs = to_device(inputs, adapter.device)
        self.context = context
        self.draft_length = draft_length
        self.runner: ModelRunner | None = None
        self.prompt_lengths: list[int] = []
        self.fed: list[int] = []  # generated tokens of each active row in the draft's cache
        self.drafted: list[int] = []
        self.round = RoundCost()  # that judges them

    def begin(self, outcome: Outcome) -> Iterator[None]:
        yield  # the target's last chunk was prefilled just before; other rows may decode
        room = (self.context.stopping.limit or 0) + self.draft_length.largest + 1
        active = outcome.rows.active
        stats = self.context.stats
        with stats.phase("draft_prefill"):
            self.runner, steps = self.open_runner(room)
        while True:
            with stats.phase("draft_prefill"):
                if next(steps, self) is self:
                    break
            yield
        if len(active) < len(self.runner.lengths):
            self.runner.keep_rows(active)
        self.prompt_lengths = list(self.runner.lengths)
        self.fed = [0] * len(active)
        self.drafted = [0] * len(active)

    def propose(self, outcome: Outcome) -> Tree:
        if not outcome.is_first:
            self._observe(outcome)
            # The newest token was never fed; every committed one before it matches what was.
            said = [len(outcome.rows.said(row)) for row in range(len(self.fed))]
            self.fed = [min(fed, count - 1) for fed, count in zip(self.fed, said, strict=True)]
        sizes = self.draft_length.choose(outcome.rows.active)
        self.drafted = [
            max(min(size, budget - 1), 0)
            for size, budget in zip(sizes, outcome.budget, strict=True)
        ]
        self.round = RoundCost(len(sizes), 1 + max(self.drafted))
        if not any(self.drafted):
            return Tree.empty(len(self.drafted), outcome.hidden.device)
        return self._draft(outcome)

    def _observe(self, outcome: Outcome) -> None:
        """Tell the sizing what the last round gave, and what it took as soon as that is known."""
        done, sizing = self.round, self.draft_length
        tokens = 1 + sum(outcome.accepted) / len(outcome.accepted)
        outcome.round_time.then(
            lambda seconds: sizing.observe_cost(replace(done, seconds=seconds), tokens)
        )
        sizing.observe(outcome.rows.active, self.drafted, outcome.accepted)

    def keep_rows(self, rows: list[int]) -> None:
        if self.runner is None:
            return  # rows that end with the prefill are dropped when the draft is prefilled
        self.runner.keep_rows(rows)
        self.prompt_lengths = [self.prompt_lengths[row] for row in rows]
        self.fed = [self.fed[row] for row in rows]
        self.drafted = [self.drafted[row] for row in rows]

    def join(self, other: ChainDrafter) -> None:
        assert self.runner is not None
        assert other.runner is not None
        self.runner.join(other.runner)
        self.prompt_lengths += other.prompt_lengths
        self.fed += other.fed
        self.drafted += other.drafted

    def close(self) -> None:
        if self.runner is not None:
            self.context.stats.draft_cache_bytes = self.runner.cache.nbytes()

    def open_runner(self, room: int) -> tuple[ModelRunner, Iterator[Any]]:
        """A runner with `room` slots behind the draft's prompt, and the steps of its prefill."""
        prompt, chunk = self.prompt(), self.context.prefill_chunk
        if chunk is not None and not self.adapter.may_split(prompt):
            self.context.stats.note(
                f"the draft, {type(self.adapter.model).__name__}, takes its whole prompt at once: "
                "its pixels can't be split into chunks"
            )
            chunk = None
        runner = ModelRunner(self.adapter, prompt.width + room)
        return runner, runner.prefill_chunks(prompt, chunk)

    def prompt(self) -> Prompt:
        """The draft's embedded prompt."""
        context = self.context
        return embed(self.adapter, self.inputs, context.prompts, context.copies)

    def _draft(self, outcome: Outcome) -> Tree:
        stats = self.context.stats
        nodes = max(self.drafted)
        backlog = [outcome.rows.said(row)[fed:] for row, fed in enumerate(self.fed)]
        start = stats.mark()
        chain: list[Tensor] = []
        given: list[Tensor] = []
        forward = self._feed_backlog(backlog)
        for node in range(nodes):
            if node:
                forward = self._feed(chain[-1])
            p, token = self._choose(forward, outcome, chain)
            chain.append(token)
            given.append(p)
        missed = max(len(row) for row in backlog) - 1
        missed = missed if missed > 1 else 0  # two tokens take as long as one
        self.round = replace(self.round, forwards=nodes, missed=missed)
        spent = stats.between(start, stats.mark())
        spent.then(self.round.add_drafting)
        stats.record_drafting(nodes, spent, is_typical=not missed)
        device = outcome.hidden.device
        probs = self._stack(given).to(device) if self.context.processing.do_sample else None
        return Tree.chain(torch.cat(chain, 1).to(device), self.drafted, probs)

    def _feed_backlog(self, backlog: list[list[int]]) -> Forward:
        """Feed each row the committed tokens it has not seen; the forward of the last of each."""
        assert self.runner is not None
        self._rewind()
        width = max(len(row) for row in backlog)
        padded = [row + [0] * (width - len(row)) for row in backlog]
        tokens = readable(torch.tensor(padded, device=self.adapter.device), self.adapter)
        forward = self.runner.forward_chain(tokens)
        self.fed = [fed + len(row) for fed, row in zip(self.fed, backlog, strict=True)]
        self._rewind()
        if width == 1:
            return forward
        last = torch.tensor([len(row) - 1 for row in backlog], device=forward.logits.device)
        rows = torch.arange(len(backlog), device=last.device)
        return Forward(forward.logits[rows, last][:, None], forward.hidden)

    def _feed(self, tokens: Tensor) -> Forward:
        """Feed one draft token a row, `[rows, 1]`."""
        assert self.runner is not None
        forward = self.runner.forward_chain(tokens)
        self.fed = [fed + 1 for fed in self.fed]
        self._rewind()
        return forward

    def _rewind(self) -> None:
        assert self.runner is not None
        self.runner.rewind(
            [prompt + fed for prompt, fed in zip(self.prompt_lengths, self.fed, strict=True)]
        )

    def _choose(
        self, forward: Forward, outcome: Outcome, chain: list[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """The next draft token `[rows, 1]`, and what it was drawn from `[rows, 1, vocab]`."""
        processing = self.context.processing
        rows = outcome.rows

        def drafted() -> Paths:
            tokens = torch.cat(chain, 1)
            return Paths(tokens, torch.ones_like(tokens, dtype=torch.bool)[:, None])

        logits = match_vocabulary(forward.logits, self.context.target.vocab_size)
        scores = processing.scores(logits, drafted if chain else None, rows.prefix)
        if not processing.do_sample:
            return scores, scores.argmax(-1)
        p = processing.probabilities(scores)
        noise = outcome.noise.to(p.device)
        return p, pick(p, noise.uniforms(Purpose.DRAFT, len(chain)))

    def _stack(self, given: list[Tensor]) -> Tensor:
        # Nothing was drawn behind the last node; its slot only keeps the shape.
        return torch.cat([*given, torch.zeros_like(given[0])], 1)


def readable(tokens: Tensor, adapter: AdapterLike) -> Tensor:
    """`tokens` with ids that only the target's larger vocabulary has replaced by the draft's last.

    Such ids are padding that a trained target never says; the draft has to survive them all the
    same.
    """
    return tokens.clamp(max=adapter.vocab_size - 1)


def match_vocabulary(logits: Tensor, vocab: int) -> Tensor:
    """Cut or pad the last axis to `vocab`, for one tokenizer with differently padded heads."""
    have = logits.shape[-1]
    if have >= vocab:
        return logits[..., :vocab]
    return torch.nn.functional.pad(logits, (0, vocab - have), value=float("-inf"))
