"""The contenders: the parser, plain and with drafts, and what a user would pick instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sooner.documents import PageDraft
from sooner.engine.stats.run import EXACT, RELAXED, Stats
from sooner.generation import Generation
from sooner.methods import Method, PromptLookup, Speculative
from sooner.parity import Parity, compare, end_ids, reference_run, until_end
from sooner.tasks.loading import ModelPair, load, pick_device, pick_dtype
from sooner.tasks.parse import PageParser, ParseSettings, decoding, load_parser
from sooner.tasks.parse.decoding import DecodeRequest, RunawayWatch, decode_alone
from sooner.tasks.parse.model_inputs import picture_inputs, room_for
from sooner.tasks.parse.result import LENGTH, REPETITION

from ..hf_arms import run as hf_run
from ..run import TimedRun
from .settings import ParseBenchSettings
from .sheets import Sheet

LOOKUP = 10
"""Draft tokens of prompt lookup, HF's and ours."""
TAU = 0.75
"""Tolerance of the relaxed arms, the paper's tau."""


@dataclass(frozen=True)
class PageRun(TimedRun):
    """The output of an arm for a page.

    Its `tokens` are one row without the id that ends it, and none where a runaway was stopped. Its
    `decode_seconds` are those in decoding loops, of stage 1 too; `e2e_seconds` go from the picture
    to Markdown, without the drafter; `stats` are of the pass over the page.

    Attributes:
        text: to the letter.
        truncated: why it did not come to an end.
        regions: of stage 1, a batch each.
        forwards: passes through the target, all stages.
    """

    text: str = ""
    truncated: str | None = None
    regions: tuple[Stats, ...] = ()
    forwards: int | None = None

    @property
    def making_seconds(self) -> float:
        """What the run spent on drafts: a draft model, or stage 1, and alignment."""
        if self.stats is None:
            return 0.0
        crops = sum(region.total_seconds for region in self.regions)
        return crops + self.stats.seconds["draft"] + self.stats.seconds["draft_prefill"]

    @property
    def drafting_seconds(self) -> float:
        """The part of that which is outside all decoding loops."""
        if self.stats is None:
            return 0.0
        crops = sum(region.total_seconds - region.decode_seconds for region in self.regions)
        return crops + self.stats.seconds["draft_prefill"]

    def is_same(self, other: PageRun) -> bool:
        """Whether both have the same ids; of a runaway, the same text."""
        if not self.tokens or not other.tokens:
            return self.text == other.text
        return self.tokens == other.tokens


Reader = Callable[[Sheet, PageDraft | None], PageRun]
"""Reads a page, given a draft."""


def is_drafted(name: str) -> bool:
    """Return whether an arm is given drafts, whose time is its own."""
    return name.startswith("hsd")


def mode_of(name: str) -> str:
    """Return the mode of an arm."""
    return RELAXED if name.endswith("relaxed") else EXACT


class ParseModels:
    """Loads the models once and makes the arms.

    Args:
        settings: of the bench.

    Raises:
        SoonerError: a model can't be loaded.
    """

    def __init__(self, settings: ParseBenchSettings) -> None:
        self.settings = settings
        pair = load_parser(settings.model, settings.device, settings.dtype)
        if settings.draft is not None:
            device = pick_device(settings.device)
            dtype = pick_dtype(settings.dtype, device, is_small=False)
            draft = load(settings.draft, device, dtype)
            pair = ModelPair(pair.target, draft, pair.prompt, pair.miniature, pair.dtype)
        self.pair, self.model = pair, pair.target.model
        self.plain = self.parser()

    def parser(self, **options: Any) -> PageParser:
        """Return a new parser, without measurements of earlier pages."""
        settings = ParseSettings(
            prompt=self.settings.prompt,
            form=self.settings.form,
            max_new_tokens=self.settings.max_new_tokens,
            **options,
        )
        return PageParser(self.pair, settings)

    def names(self) -> list[str]:
        """Return the arms of the settings, plain first; `speculative` needs a draft model."""
        has_draft = self.pair.draft is not None
        return [name for name in self.settings.arms if has_draft or name != "speculative"]

    def reader(self, name: str) -> Reader:
        """Return an arm, with a parser of its own."""
        if is_drafted(name):
            stages = "page" if name.startswith("hsd-page") else "both"
            threshold = 1.0 if mode_of(name) == EXACT else TAU
            return self._parsing(self.parser(stages=stages, acceptance_threshold=threshold))
        if name.startswith("hf"):
            # HF looks up ids of pictures, too, and the model then misses their features.
            lookup = {"prompt_lookup_num_tokens": LOOKUP, "suppress_tokens": self._pictures()}
            return self._hf(lookup if name == "hf-prompt-lookup" else {})
        if name == "prompt-lookup":
            return self._engine(lambda: PromptLookup(LOOKUP))
        if name == "speculative":
            draft: Any = self.pair.draft
            return self._engine(lambda: Speculative(draft.model))
        return self._parsing(self.plain)

    def _pictures(self) -> list[int]:
        """Return the ids that stand for pixels; no text holds one."""
        names = ("image_token_id", "video_token_id")
        ids = (getattr(self.model.config, name, None) for name in names)
        return [token for token in ids if isinstance(token, int)]

    def _parsing(self, parser: PageParser) -> Reader:
        def read(sheet: Sheet, draft: PageDraft | None) -> PageRun:
            with recorded(self.model) as calls:
                began = time.perf_counter()
                parsed = parser(sheet.page, draft)
                seconds = time.perf_counter() - began
            tokens, stats = calls[-1]  # behind those of regions
            is_stopped = parsed.truncated not in (None, LENGTH)
            return PageRun(
                [] if is_stopped else [tokens[0]],
                parsed.seconds["decode"],
                seconds,
                len(tokens[0]),
                stats,
                text=parsed.raw,
                truncated=parsed.truncated,
                regions=tuple(stats for _, stats in calls[:-1]),
                forwards=sum(stats.nfe for _, stats in calls),
            )

        return read

    def _engine(self, make: Callable[[], Method]) -> Reader:
        def read(sheet: Sheet, draft: PageDraft | None) -> PageRun:
            began = time.perf_counter()
            inputs, limit = self.inputs(sheet)
            request = DecodeRequest(inputs, [limit], [self.plain.settings.repetition])
            (row,), stats = decode_alone(request, self.model, set(self.plain.eos), make())
            text = self.text(row.tokens)
            seconds, count = time.perf_counter() - began, len(row.tokens)
            return PageRun(
                [row.tokens], stats.decode_seconds, seconds, count, stats,
                text=text, truncated=row.truncated, forwards=stats.nfe,
            )  # fmt: skip

        return read

    def _hf(self, options: dict[str, Any]) -> Reader:
        def read(sheet: Sheet, draft: PageDraft | None) -> PageRun:
            began = time.perf_counter()
            inputs, limit = self.inputs(sheet)
            tokens, seconds, _ = hf_run(self.model, inputs, limit, **options)
            is_ended = bool(tokens) and tokens[-1] in self.plain.eos
            run = self._cut(tokens[:-1] if is_ended else tokens, None if is_ended else LENGTH)
            return replace(run, decode_seconds=seconds, e2e_seconds=time.perf_counter() - began)

        return read

    def inputs(self, sheet: Sheet) -> tuple[dict[str, Any], int]:
        """Return the model's inputs for a page, and how many tokens it may write."""
        made = picture_inputs(
            self.pair.target.processor, [sheet.page.picture], self.plain.ask.page, self.model
        )
        return made, room_for(self.model, made, self.settings.max_new_tokens)

    def _cut(self, tokens: list[int], truncated: str | None) -> PageRun:
        """Return what is left of a text that nothing has stopped where it repeats itself."""
        watch = RunawayWatch(self.plain.settings.repetition)
        for count, token in enumerate(tokens, start=1):
            if watch.add(token):
                tokens, truncated = tokens[:count], REPETITION
                break
        text = self.text(tokens)
        return PageRun([tokens], 0.0, 0.0, len(tokens), text=text, truncated=truncated)

    def text(self, tokens: list[int]) -> str:
        return str(self.pair.target.tokenizer.decode(tokens, skip_special_tokens=True))

    def parity(self, sheet: Sheet, plain: PageRun, other: PageRun) -> Parity:
        """Compare an exact arm's output with plain decoding's; ties are looked for by HF's."""
        if other.is_same(plain):
            return Parity("identical")
        if not other.tokens or not plain.tokens:
            return Parity("bug", 0)
        inputs, limit = self.inputs(sheet)
        tokens, scores = reference_run(self.model, inputs, max_new_tokens=limit)
        ended = tokens[0][len(other.tokens[0]) :][:1]
        candidate = [*other.tokens[0], *(ended if not other.truncated else [])]
        return compare(tokens[0], candidate, scores[0])


@contextmanager
def recorded(model: Any) -> Iterator[list[tuple[list[list[int]], Stats]]]:
    """Record every `generate` of a parser of `model` within the block: new tokens of each row
    without the id that ends it, and statistics.

    A parser returns texts, and ids are what exactness is about.
    """
    calls: list[tuple[list[list[int]], Stats]] = []
    generate = decoding.generate
    ends = end_ids(model)

    def recording(*args: Any, **options: Any) -> Generation:
        made = generate(*args, **options)
        calls.append(([_bare(until_end(row, ends), ends) for row in made.tokens], made.stats))
        return made

    decoding.generate = recording
    try:
        yield calls
    finally:
        decoding.generate = generate


def _bare(tokens: Sequence[int], ends: Sequence[int]) -> list[int]:
    return list(tokens[:-1] if tokens and tokens[-1] in ends else tokens)
