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
    whose drafts were all accepted, or that decoded plainly for a while, simply catch up. What was
    committed behind a draft is on the device already; only rows that are further behind, or that
    draft chains of several lengths, need something of the host, in one upload.

    Rows that begin while drafting pauses, since plain rounds are faster with as many rows as
    decode, are never drafted for: a token stands in the draft's cache for their prompt.

    Args:
        adapter: the draft model's adapter.
        inputs: the draft's own processed inputs.
        context: the run.
        draft_length: chooses the draft length.

    Attributes:
        purpose: of the random numbers that drafts are drawn with; with the target's own, a draft
            tends to be what the target draws.
    """

    purpose = Purpose.DRAFT

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
        self.may_draft: list[bool] = []  # rows whose prompts the draft has read
        self.drafted: list[int] = []
        # Tokens of the pending draft that are in the draft's cache, uncommitted; `None`: no draft.
        self.written: int | None = None
        self.round = RoundCost()  # that judges them

    def begin(self, outcome: Outcome) -> Iterator[None]:
        yield  # the target's last chunk was prefilled just before; other rows may decode
        room = (self.context.stopping.limit or 0) + self.draft_length.largest + 1
        active = outcome.rows.active
        stats = self.context.stats
        has_prompt = self.draft_length.takes_rows()
        with stats.phase("draft_prefill"):
            open_runner = self.open_runner if has_prompt else self._open_without_prompt
            self.runner, steps = open_runner(room)
        while True:
            with stats.phase("draft_prefill"):
                if next(steps, self) is self:
                    break
            yield
        if len(active) < len(self.runner.lengths):
            self.runner.keep_rows(active)
        graphs, device = self.context.graphs, self.context.target.device
        if graphs is not None and self.adapter.device == device:
            self.runner.graphs = graphs.forwards(self.runner)
        self.prompt_lengths = list(self.runner.lengths)
        self.may_draft = [has_prompt] * len(active)
        self.drafted = [0] * len(active)

    def propose(self, outcome: Outcome) -> Tree:
        if not outcome.is_first:
            self._observe(outcome)
        sizes = self.draft_length.choose(outcome.rows.active, self.may_draft)
        self.drafted = [
            max(min(size, budget - 1), 0) if may_draft else 0
            for size, budget, may_draft in zip(sizes, outcome.budget, self.may_draft, strict=True)
        ]
        self.round = RoundCost(len(sizes), 1 + max(self.drafted))
        kept, self.written = self._keep(outcome), None
        if not any(self.drafted):
            return Tree.empty(len(self.drafted), outcome.hidden.device)
        return self._draft(outcome, kept)

    def _observe(self, outcome: Outcome) -> None:
        """Tell the sizing what the last round gave, and what it took as soon as that is known."""
        done, sizing = self.round, self.draft_length
        tokens = 1 + sum(outcome.accepted) / len(outcome.accepted)
        outcome.round_time.then(
            lambda seconds: sizing.observe_cost(replace(done, seconds=seconds), tokens)
        )
        is_timed = not outcome.round_time.is_lost
        sizing.observe(outcome.rows.active, self.drafted, outcome.accepted, is_timed)

    def keep_rows(self, rows: list[int]) -> None:
        if self.runner is None:
            return  # rows that end with the prefill are dropped when the draft is prefilled
        self.runner.keep_rows(rows)
        self.prompt_lengths = [self.prompt_lengths[row] for row in rows]
        self.may_draft = [self.may_draft[row] for row in rows]
        self.drafted = [self.drafted[row] for row in rows]

    def join(self, other: ChainDrafter) -> None:
        assert self.runner is not None
        assert other.runner is not None
        self.runner.join(other.runner)
        self.prompt_lengths += other.prompt_lengths
        self.may_draft += other.may_draft
        self.drafted += other.drafted

    def close(self) -> None:
        self.draft_length.close()
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
        runner.cache.max_rows = self.context.runner.cache.max_rows
        return runner, runner.prefill_chunks(prompt, chunk)

    def _open_without_prompt(self, room: int) -> tuple[ModelRunner, Iterator[Any]]:
        """The same for rows that are never drafted for."""
        self.context.stats.note(
            "joined without a draft: plain decoding is faster with as many rows as decode"
        )
        pixels = self.adapter.visual_ids
        token = min(set(range(1 + len(pixels))) - set(pixels))
        rows = self.context.rows.batch
        ids = torch.full((rows, 1), token, device=self.adapter.device)  # [rows, 1]
        runner = ModelRunner(self.adapter, 1 + room)
        runner.cache.max_rows = self.context.runner.cache.max_rows
        return runner, runner.prefill_chunks(self.adapter.embed_prompt({"input_ids": ids}))

    def prompt(self) -> Prompt:
        """The draft's embedded prompt."""
        context = self.context
        return embed(self.adapter, self.inputs, context.prompts, context.copies, context.own)

    @property
    def fed(self) -> list[int]:
        """Generated tokens of each active row in the draft's cache."""
        assert self.runner is not None
        lengths = zip(self.runner.lengths, self.prompt_lengths, strict=True)
        return [length - prompt for length, prompt in lengths]

    def _keep(self, outcome: Outcome) -> Tensor | None:
        """Commit what was accepted of the pending draft and is in the draft's cache.

        A row that has just joined has none of either.

        Returns:
            how many draft tokens of each row were kept, `[rows]`; `None`: nothing was pending.
        """
        assert self.runner is not None
        if self.written is None:
            return None
        most = self.written
        kept = (self._entries(outcome) - 1).clamp(max=most)
        if most:
            self.runner.commit_chain(kept, [min(count, most) for count in outcome.accepted])
        return kept

    def _entries(self, outcome: Outcome) -> Tensor:
        return outcome.committed.entries.to(self.adapter.device)

    def _draft(self, outcome: Outcome, kept: Tensor | None) -> Tree:
        assert self.runner is not None
        stats = self.context.stats
        nodes = max(self.drafted)
        start = stats.mark()
        chain: list[Tensor] = []
        given: list[Tensor] = []
        forward, missing = self._catch_up(outcome, kept)
        for node in range(nodes):
            if node:
                forward = self.runner.forward_chain(chain[-1], written=node - 1)
            p, token = self._choose(forward, outcome, chain)
            chain.append(token)
            given.append(p)
        self.written = nodes - 1
        device = outcome.hidden.device
        probs = self._stack(given).to(device) if self.context.processing.do_sample else None
        tree = Tree.chain(torch.cat(chain, 1).to(device), self.drafted, probs)
        missed = missing - 1 if missing > 2 else 0  # two tokens take as long as one
        self.round = replace(self.round, forwards=nodes, missed=missed)
        spent = stats.between(start, stats.mark())
        spent.then(self.round.add_drafting)
        stats.record_drafting(nodes, spent, is_typical=not missed)
        return tree

    def _catch_up(self, outcome: Outcome, kept: Tensor | None) -> tuple[Forward, int]:
        """Feed each row the committed tokens that the draft has not seen, and commit them.

        Args:
            kept: draft tokens of the last round that the draft's cache holds, `[rows]`, if it was
                one with a draft.

        Returns:
            the forward of the last one of each row, and most tokens of a row.
        """
        assert self.runner is not None
        said = [outcome.rows.said(row) for row in range(len(self.prompt_lengths))]
        counts = [
            len(text) - fed if may_draft else 0
            for text, fed, may_draft in zip(said, self.fed, self.may_draft, strict=True)
        ]
        width, is_even = max(counts), len(set(counts)) == 1
        sizes = None
        if all(self.may_draft) and (width == 1 or (kept is not None and width == 2)):
            tokens = outcome.committed.last(width).to(self.adapter.device)
            if not is_even:  # of the others only the newest token is missing
                assert kept is not None
                sizes = self._entries(outcome) - kept
                tokens = torch.where(sizes[:, None] > 1, tokens, tokens[:, 1:])
        else:
            lines = [
                [count, *text[len(text) - count :], *[0] * (width - count)]
                for text, count in zip(said, counts, strict=True)
            ]
            packed = torch.tensor(lines, device=self.adapter.device)
            sizes, tokens = packed[:, 0], packed[:, 1:]
        forward = self.runner.forward_chain(readable(tokens, self.adapter))
        if is_even:
            self.runner.cache.shift(width)
            return Forward(forward.logits[:, -1:], forward.hidden), width
        assert sizes is not None
        self.runner.commit_chain(sizes, counts)
        rows = torch.arange(len(sizes), device=sizes.device)
        return Forward(forward.logits[rows, sizes - 1][:, None], forward.hidden), width

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
        return p, pick(p, noise.uniforms(self.purpose, len(chain)))

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
