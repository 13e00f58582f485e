"""Speculative decoding: a draft model writes a chain, with a prompt, a cache and a rollback of its
own, and one target forward checks it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..checks import option
from ..engine.acceptance import VerifyResult, follow_choices, pure, reject_chain
from ..engine.interface import Drafter, Outcome, Prompt
from ..engine.loop import Rule
from ..engine.noise import Purpose, RowNoise
from ..engine.runner import Forward, ModelRunner
from ..engine.sampling import Processing, pick
from ..engine.tree import Paths, Tree
from ..models import Adapter, adapt
from .base import DraftMethod, MethodSettings
from .context import Context, embed, to_device, words_only
from .controller import RoundCost
from .draft_length import Acceptance, AdaptiveDraftLength, DraftLength, plan_round

if TYPE_CHECKING:
    from .prompt_lookup import LookupDrafts


@dataclass(frozen=True)
class Speculative(DraftMethod):
    """Runs speculative decoding with a draft model (Leviathan et al. 2023; Chen et al. 2023).

    Args:
        others: draft, draft_inputs, as of `DraftMethod`.
        num_draft_tokens: draft tokens a round, or `"auto"` for the number that measurably pays,
            which may be none: then decoding is plain until speculation is tried again. A draft
            whose weights are as many bytes as the target's is never tried, unless some of either
            are quantised.
        max_draft_tokens: upper limit for `"auto"`.
        experience: the acceptance of earlier runs, which `"auto"` begins with and adds to; for one
            pair of models. Without it every run begins with a guess.

    Raises:
        SoonerError: num_draft_tokens below 1, or draft and target of different tokenizers.
    """

    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    max_draft_tokens: int = option(16, 1)
    experience: Acceptance | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "speculative"
    drafts_chains: ClassVar[bool] = True

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        pruned = None if settings.draft_inputs is None else 0.0
        return cls(
            settings.draft, num_draft_tokens=settings.num_draft_tokens,
            draft_inputs=settings.draft_inputs, experience=settings.experience(pruned),
        )  # fmt: skip

    def expect(self, rows: int, waiting: int, max_rows: int) -> None:
        if self.experience is not None:
            self.experience.requests.expect(rows, waiting, max_rows)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        adapter, inputs = self.draft_of(context)
        return ChainDrafter(adapter, inputs, context, self._draft_length(context)), reject

    def _draft_length(self, context: Context) -> DraftLength:
        if self.num_draft_tokens == "auto":
            note, known = context.stats.note, self.experience
            if known is not None:
                known = known.of(any("pixel" in name for name in context.inputs))
            may_pay = _may_be_faster(adapt(self.draft), context.target)
            return AdaptiveDraftLength(self.max_draft_tokens, note, known, may_pay)
        return DraftLength(int(self.num_draft_tokens))


@dataclass(frozen=True)
class OnSD(Speculative):
    """Runs speculative decoding with a text-only draft (Gagrani et al. 2024).

    The draft is a language model, or the language model inside a multimodal one, and gets the
    words of the prompt alone: no pixels, no placeholders, and so no cost that grows with the
    video. What only the pixels tell it has to guess.

    Args:
        all: as for `Speculative`; the baseline drafts 5 tokens a round.

    Raises:
        SoonerError: num_draft_tokens below 1, or draft and target of different tokenizers.
    """

    name: ClassVar[str] = "onsd"

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        return super().from_settings(replace(settings, draft_inputs=None))

    def draft_of(self, context: Context) -> tuple[Adapter, Mapping[str, Any]]:
        adapter, inputs = super().draft_of(context)
        return adapter, words_only(context) if self.draft_inputs is None else inputs


def _may_be_faster(draft: Adapter, target: Adapter) -> bool:
    """Returns whether a step of the draft may be faster than one of the target: its weights are
    fewer bytes, or some are quantised, whose steps take what their kernels take.
    """
    weights = [list(adapter.decoder.parameters()) for adapter in (draft, target)]
    if not all(weight.is_floating_point() for each in weights for weight in each):
        return True
    ours, others = (sum(weight.nbytes for weight in each) for each in weights)
    return ours < others or not others


@pure
def reject(tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise) -> VerifyResult:
    """Returns rejection sampling where there is a draft; a plain draw where there is none."""
    if tree.probs is None:
        return follow_choices(tree, scores, processing, noise)
    return reject_chain(tree, processing.probabilities(scores), noise)


class ChainDrafter(Drafter):
    """Drafts token by token with a second model, after the target's forward.

    The draft's cache holds its own prompt and the generated tokens it was fed. After each round
    it keeps those that were committed and is fed the rest together with the newest token, so rows
    whose drafts were all accepted, or that decoded plainly for a while, simply catch up.

    Rows whose draft would not pay for its prefill have no row of the draft's cache. What followed
    the same words earlier in their text is drafted (`looks_up`), which needs no model.

    Args:
        adapter: the draft model's adapter.
        inputs: the draft's own processed inputs.
        context: the run.
        draft_length: chooses the draft length.

    Attributes:
        memory: an engine's `DraftMemory` for the draft's prompt, where it counts pages; until that
            is embedded.
        purpose: of the random numbers that drafts are drawn with; with the target's own, a draft
            tends to be what the target draws.
        looks_up: whether other rows have drafts that were looked up; only for a rule that asks for
            no probabilities of drafts.
        prediction: what the rows are expected to generate; where drafts are looked up, they are
            looked up in it, and the model drafts nothing.
    """

    purpose = Purpose.DRAFT
    looks_up = False
    prediction: Sequence[int] = ()

    def __init__(
        self,
        adapter: Adapter,
        inputs: Mapping[str, Any],
        context: Context,
        draft_length: DraftLength,
    ) -> None:
        self.adapter = adapter
        self.inputs = to_device(inputs, adapter.device)
        self.context = context
        self.draft_length = draft_length
        self.runner: ModelRunner | None = None
        self.memory: Any = None
        self.prompt_lengths: list[int] = []
        self.members: list[int] = []  # rows whose prompts the draft has read, ascending
        self.lookup: LookupDrafts | None = None  # of other rows, from when there is one
        self._index: Tensor | None = None  # the same on the draft's device, unless they are all
        self.began: list[DraftLength] = []  # what sized each row's drafts when it was prefilled
        self.drafted: list[int] = []
        # Tokens of the pending draft that are in the draft's cache, uncommitted; `None`: no draft.
        self.written: int | None = None
        self.round = RoundCost()  # that verifies them

    def begin(self, outcome: Outcome) -> Iterator[None]:
        active, stopping = outcome.rows.active, self.context.stopping
        width = int(self.context.inputs["input_ids"].shape[1])
        left = None if stopping.may_end_early else stopping.tokens_left(outcome.rows)
        is_predicted = self.looks_up and bool(self.prediction)
        has_prompt = self.draft_length.takes_rows(width, stopping.limit, left) and not is_predicted
        self.began = [self.draft_length] * len(active)
        self.drafted = [0] * len(active)
        self.members = list(range(len(active))) if has_prompt else []
        if self.looks_up:
            from .prompt_lookup import LookupDrafts  # not if every row is drafted for

            prompts = self.context.rows.prompts
            self.lookup = LookupDrafts(
                [None if has_prompt else prompts[row] for row in active],
                [self.prediction] * len(active),
            )
        self._index = self._index_of_members()
        if has_prompt:
            yield  # the target's last chunk was prefilled just before; other rows may decode
            yield from self._prefill(
                active, (stopping.limit or 0) + self.draft_length.largest + 1, width
            )
        else:
            self.memory = None
            reason = "has a prediction" if is_predicted else "would not pay for its prefill"
            self.context.stats.note(f"joined without a draft of the model: {reason}")

    def _prefill(self, active: list[int], room: int, width: int) -> Iterator[None]:
        """Read the prompts of these rows, `width` tokens wide, and report what that took."""
        stats, took = self.context.stats, list[float]()
        chunks: Iterator[Any] | None = None
        is_done = False
        while not is_done:
            began = stats.work_mark()
            with stats.phase("draft_prefill"):
                if chunks is None:
                    self.runner, chunks = self.open_runner(room)
                    self.memory = None  # it knows the batch beside, which may end long before
                is_done = next(chunks, self) is self
            spent = stats.between(began, stats.work_mark())
            spent.then(took.append)
            if not is_done:
                yield
        assert self.runner is not None
        width -= self.runner.cache.prefix
        spent.then(lambda last: self.draft_length.prefilled(width, sum(took) / len(active)))
        if len(active) < len(self.runner.lengths):
            self.runner.select_rows(active)
        self._launch_as_graphs(self.runner)
        self.prompt_lengths = list(self.runner.lengths)

    def propose(self, outcome: Outcome) -> Tree:
        if not outcome.is_first:
            self.draft_length.observe_round(outcome, self.drafted, self.round)
        length = self.draft_length
        looked_up: list[np.ndarray | None] = [None] * len(self.began)
        if self.lookup is not None:
            looked_up = self.lookup.look_up(outcome, length.largest, self.context.processing)
        self.drafted, self.round = plan_round(
            length, self.context, outcome, looked_up, self.members, self.began
        )
        cached, self.written = self._keep(outcome), None
        tree = Tree.empty(len(self.drafted), outcome.hidden.device)
        if self.round.members:
            tree = self._draft(outcome, cached)
        if self.lookup is not None and any(self.lookup.drafts):
            tree = self.lookup.merge_into(tree, self.drafted)
        return tree

    def select_rows(self, rows: list[int]) -> None:
        if not self.began:
            return  # rows that end with the prefill are dropped when the draft is prefilled
        self.began = [self.began[row] for row in rows]
        self.drafted = [self.drafted[row] for row in rows]
        indices = [self.members.index(row) for row in rows if row in self.members]
        self.members = [place for place, row in enumerate(rows) if row in self.members]
        if self.lookup is not None:
            self.lookup.select_rows(rows)
        if self.runner is not None:
            self.runner.select_rows(indices)
        self.prompt_lengths = [self.prompt_lengths[place] for place in indices]
        if not indices:
            self.written = None
        self._index = self._index_of_members()

    def merge(self, other: ChainDrafter) -> None:
        self.members += [len(self.began) + row for row in other.members]
        self.began += other.began
        if self.lookup is not None and other.lookup is not None:
            self.lookup.merge(other.lookup)
        self.drafted += other.drafted
        self.prompt_lengths += other.prompt_lengths
        if self.runner is not None and other.runner is not None:
            self.runner.merge(other.runner)
            if other.runner.graphs is not None:
                other.runner.graphs.release(other.runner)
        elif other.runner is not None:
            self.runner = other.runner
            self.runner.cache.max_rows = self.context.runner.cache.max_rows
            self._launch_as_graphs(self.runner)
        self._index = self._index_of_members()

    def _launch_as_graphs(self, runner: ModelRunner, rows: int | None = None) -> None:
        """Let a runner's forwards be graphs, beside the target's; `rows` are those of its prompts,
        where they are not prefilled yet."""
        graphs = self.context.graphs
        if graphs is None or self.adapter.device != self.context.target.device:
            return
        if runner.graphs is None:
            runner.graphs = graphs.forwards(runner, rows)
        else:
            graphs.count(runner.graphs)

    def _index_of_members(self) -> Tensor | None:
        """Returns `members` where the draft is, or `None` if they are all rows."""
        if len(self.members) == len(self.began):
            return None
        return torch.tensor(self.members, device=self.adapter.device)

    def _of_members(self, values: Tensor) -> Tensor:
        """Returns `values` of the rows in the draft's cache, from values of every row."""
        return values if self._index is None else values[self._index]

    def _of_all(self, values: Tensor) -> Tensor:
        """Returns values of every row, zeros where the draft has none."""
        if self._index is None:
            return values
        whole = values.new_zeros(len(self.began), *values.shape[1:])
        return whole.index_copy_(0, self._index, values)

    def close(self) -> None:
        self.draft_length.close()
        if self.runner is not None:
            self.context.stats.draft_cache_bytes = self.runner.cache.nbytes()
            if self.runner.graphs is not None:
                self.runner.graphs.release(self.runner)

    def open_runner(self, room: int) -> tuple[ModelRunner, Iterator[Any]]:
        """Returns a runner with `room` slots behind the draft's prompt, and its prefill's steps."""
        memory, chunk = self.memory, self.context.prefill_chunk
        with nullcontext() if memory is None else memory.embedding():
            prompt = self.prompt()
        if memory is not None and not memory.takes(prompt):
            prompt = self.prompt()  # without features of what it knows it would not be whole
        if chunk is not None and not self.adapter.may_split(prompt):
            self.context.stats.note(
                f"the draft, {type(self.adapter.model).__name__}, takes its whole prompt at once: "
                "its pixels can't be split into chunks"
            )
            chunk = None
        runner = ModelRunner(self.adapter, prompt.width + room)
        runner.cache.max_rows = self.context.runner.cache.max_rows
        if memory is None or not memory.place(runner.cache, prompt.rows):
            self._launch_as_graphs(runner, prompt.rows)
        if memory is not None:
            memory.fill(runner.cache)
        return runner, runner.prefill_chunks(prompt, chunk)

    def prompt(self) -> Prompt:
        """Returns the draft's embedded prompt."""
        context = self.context
        return embed(self.adapter, self.inputs, context.prompts, context.copies, context.output_ids)

    def _keep(self, outcome: Outcome) -> Tensor | None:
        """Commit what was accepted of the pending draft and is in the draft's cache; returns how
        many draft tokens of each of `members` were kept, and `None` where nothing was pending."""
        if (limit := self.written) is None:
            return None
        assert self.runner is not None
        cached = (self._entries(outcome) - 1).clamp(max=limit)
        if limit:
            counts = [min(outcome.accepted[row], limit) for row in self.members]
            self.runner.commit_chain(cached, counts)
        return cached

    def _entries(self, outcome: Outcome) -> Tensor:
        return self._of_members(outcome.committed.entries.to(self.adapter.device))

    def _draft(self, outcome: Outcome, cached: Tensor | None) -> Tree:
        runner, stats = self.runner, self.context.stats
        assert runner is not None
        members = set(self.members)
        drafted = [many if row in members else 0 for row, many in enumerate(self.drafted)]
        nodes = max(drafted)
        start, began = stats.mark(), stats.work_mark()
        forward, missing = self._catch_up(outcome, cached)
        written = itertools.count()

        def step(token: Tensor | None) -> Tensor:
            made = forward
            if token is not None:
                made = runner.forward_chain(self._of_members(token), written=next(written))
            return self._of_all(match_vocabulary(made.logits, self.context.target.vocab_size))

        tree = draw_chain(
            step, drafted, outcome, self.context.processing, self.purpose,
            has_probs=not self.looks_up,
        )  # fmt: skip
        self.written = nodes - 1
        missed = missing - 1 if missing > 2 else 0  # two tokens take as long as one
        self.round = replace(self.round, forwards=nodes, missed=missed)
        stats.between(began, stats.work_mark()).then(self.round.add_drafting)
        spent = stats.between(start, stats.mark())
        stats.record_drafting(nodes, spent, is_typical=not missed)
        return tree

    def _catch_up(self, outcome: Outcome, cached: Tensor | None) -> tuple[Forward, int]:
        """Feed each row the committed tokens that the draft has not seen, and commit them; returns
        the forward of the last one of each of `members`, and most tokens of a row.

        What was committed behind a draft is on the device already; only rows that are further
        behind, or that drafted chains of several lengths, need one upload. `cached` are draft
        tokens of the last round that the draft's cache holds, `[members]`, if it was one with a
        draft."""
        assert self.runner is not None
        outputs = [outcome.rows.output(row) for row in self.members]
        lengths = zip(outputs, self.prompt_lengths, self.runner.lengths, strict=True)
        counts = [len(text) + prompt - length for text, prompt, length in lengths]
        counts = self._feed_what_does_not_fit(outputs, counts)
        width, is_even = max(counts), len(set(counts)) == 1
        sizes = None
        if width == 1 or (cached is not None and width == 2):
            tokens = self._of_members(outcome.committed.last(width).to(self.adapter.device))
            if not is_even:  # of the others only the newest token is missing
                assert cached is not None
                sizes = self._entries(outcome) - cached
                tokens = torch.where(sizes[:, None] > 1, tokens, tokens[:, 1:])
        else:
            sizes, tokens = self._packed(outputs, counts, counts)
        forward = self.runner.forward_chain(readable(tokens, self.adapter))
        if is_even:
            self.runner.cache.shift(width)
            return Forward(forward.logits[:, -1:], forward.hidden), width
        assert sizes is not None
        self.runner.commit_chain(sizes, counts)
        rows = torch.arange(len(sizes), device=sizes.device)
        return Forward(forward.logits[rows, sizes - 1][:, None], forward.hidden), width

    def _feed_what_does_not_fit(self, outputs: list[list[int]], counts: list[int]) -> list[int]:
        """Feed rows that are far behind, until what is missing fits behind the longest row, too: a
        block is as wide for all rows, and a row near its end has room for its own tokens alone.

        `counts` are how many of the last tokens of each of `outputs` the draft has not seen.
        Returns how many it has not seen now; at least one, if it was.
        """
        assert self.runner is not None
        cache, counts = self.runner.cache, list(counts)
        while (longest := max(counts)) > (room := cache.capacity - cache.longest):
            fed = [min(max(count - room, 0), room) for count in counts]
            sizes, tokens = self._packed(outputs, counts, fed)
            self.runner.forward_chain(readable(tokens, self.adapter))
            self.runner.commit_chain(sizes, fed)
            counts = [count - some for count, some in zip(counts, fed, strict=True)]
            assert max(counts) < longest
        return counts

    def _packed(
        self, outputs: list[list[int]], counts: list[int], fed: list[int]
    ) -> tuple[Tensor, Tensor]:
        """Returns `fed` as a tensor `[rows]`, and the first `fed` of the last `counts` tokens of
        each row, `[rows, max(fed)]`, padded on the right, in one upload."""
        width = max(fed)
        lines = [
            [some, *text[len(text) - count :][:some], *[0] * (width - some)]
            for text, count, some in zip(outputs, counts, fed, strict=True)
        ]
        packed = torch.tensor(lines, device=self.adapter.device)
        return packed[:, 0], packed[:, 1:]


def draw_chain(
    step: Callable[[Tensor | None], Tensor], sizes: Sequence[int], outcome: Outcome,
    processing: Processing, purpose: Purpose = Purpose.DRAFT, draws: bool = True,
    has_probs: bool = True,
) -> Tree:  # fmt: skip
    """Returns chains that are drafted token by token.

    Args:
        step: returns the draft model's logits `[rows, 1, vocab]` behind the last token `[rows, 1]`;
            `None` at first.
        sizes: tokens of each row.
        purpose: of the random numbers.
        draws: under sampling tokens are drawn, not the best ones; `has_probs`: and the chains say
            from which distributions.
    """
    chain: list[Tensor] = []
    probs: list[Tensor] = []
    draws &= processing.do_sample
    for place in range(max(sizes)):
        logits = step(chain[-1] if chain else None)
        drafted: Callable[[], Paths] | None = None
        if chain:
            tokens = torch.cat(chain, 1)
            drafted = partial(Paths, tokens, torch.ones_like(tokens, dtype=torch.bool)[:, None])
        scores = processing.scores(logits, drafted, outcome.rows.prefix)
        if not draws:
            chain.append(scores.argmax(-1))
            continue
        probs.append(processing.probabilities(scores))
        chain.append(pick(probs[-1], outcome.noise.to(scores.device).uniforms(purpose, place)))
    device = outcome.hidden.device
    drawn = torch.cat(probs, 1).to(device) if draws and has_probs else None
    return Tree.chain(torch.cat(chain, 1).to(device), sizes, drawn)


def readable(tokens: Tensor, adapter: Adapter) -> Tensor:
    """Returns `tokens` with ids that only the target's larger vocabulary has, which are padding,
    replaced by the draft's last."""
    return tokens.clamp(max=adapter.vocab_size - 1)


def match_vocabulary(logits: Tensor, vocab: int) -> Tensor:
    """Cut or pad the last axis to `vocab`, for one tokenizer with differently padded heads."""
    if (lacking := vocab - logits.shape[-1]) > 0:
        return pad(logits, (0, lacking), value=-torch.inf)
    return logits[..., :vocab]
