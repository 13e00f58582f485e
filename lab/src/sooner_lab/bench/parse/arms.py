"""The contenders: the parser, plain and with drafts, and what a user would pick instead."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sooner.documents import PageDraft
from sooner.engine.stats.run import EXACT, RELAXED, Stats
from sooner.methods import Autoregressive, Method, PromptLookup, Speculative
from sooner.tasks.loading import ModelPair, load, pick_device, pick_dtype
from sooner.tasks.parse import PageParser, ParseSettings, load_parser
from sooner.tasks.parse.decoding import RunawayWatch, decode_rows
from sooner.tasks.parse.model_inputs import picture_inputs, room_for
from sooner.tasks.parse.result import LENGTH, REPETITION

from ..hf_arms import run as hf_run
from .listening import listening
from .settings import RELAXED as TAU
from .settings import ParseBenchSettings
from .sheets import Sheet

LOOKUP = 10
"""Draft tokens of prompt lookup, HF's and ours."""


@dataclass(frozen=True)
class Spoken:
    """The output of an arm for a page.

    Attributes:
        text: to the letter.
        tokens: without the id that ends it; `None` where a runaway was stopped.
        truncated: why it did not come to an end.
        decode_seconds: in decoding loops, those of stage 1 included.
        e2e_seconds: from the picture to Markdown, without the drafter.
        stats: of the pass over the page.
        regions: of stage 1, a batch each.
        forwards: passes through the target, all stages.
    """

    text: str
    tokens: list[int] | None
    truncated: str | None
    decode_seconds: float
    e2e_seconds: float
    stats: Stats | None = None
    regions: list[Stats] = field(default_factory=list)
    forwards: int | None = None

    @property
    def making_seconds(self) -> float:
        """What the run spent on drafts: a draft model, or stage 1, and alignment."""
        if self.stats is None:
            return 0.0
        return self.stats.seconds["draft"] + self.stats.seconds["draft_prefill"]

    @property
    def drafting_seconds(self) -> float:
        """The part of that which is outside all decoding loops."""
        if self.stats is None:
            return 0.0
        within = sum(region.decode_seconds for region in self.regions)
        return max(self.stats.seconds["draft_prefill"] - within, 0.0)

    def same_as(self, other: Spoken) -> bool:
        """Whether both said the same ids; of a runaway, the same text."""
        if self.tokens is None or other.tokens is None:
            return self.text == other.text
        return self.tokens == other.tokens


SheetParser = Callable[[Sheet, PageDraft | None], Spoken]


@dataclass(frozen=True)
class ParseContender:
    """One arm.

    Attributes:
        name: of `settings.ARMS`, mostly.
        parse: parses a page.
        drafted: it is given drafts, and their time is its own.
        mode: `exact` or `relaxed`.
    """

    name: str
    parse: SheetParser
    drafted: bool = False
    mode: str = EXACT


class Stable:
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
            where = pick_device(settings.device)
            dtype = pick_dtype(settings.dtype, where, is_small=False)
            draft = load(settings.draft, where, dtype)
            pair = ModelPair(pair.target, draft, pair.prompt, pair.miniature, pair.dtype)
        self.pair, self.model = pair, pair.target.model
        self.plain = self.parser()

    def parser(self, **options: Any) -> PageParser:
        """A new parser, without measurements of earlier pages."""
        options_set = self.settings
        settings = ParseSettings(
            prompt=options_set.prompt,
            form=options_set.form,
            max_new_tokens=options_set.max_new_tokens,
            **options,
        )
        return PageParser(self.pair, settings)

    def contenders(self) -> list[ParseContender]:
        """The arms that were asked for, plain first; `speculative` needs a draft model."""
        known = self._known()
        return [known[name]() for name in self.settings.arms if name in known]

    def contender(self, name: str) -> ParseContender:
        """One arm, whether it was asked for or not."""
        return self._known()[name]()

    def _known(self) -> Mapping[str, Callable[[], ParseContender]]:
        # HF looks up ids of pictures, too, and the model then misses their features.
        lookup = {"prompt_lookup_num_tokens": LOOKUP, "suppress_tokens": self._pictures()}
        arms: dict[str, Callable[[], ParseContender]] = {
            "plain": lambda: ParseContender("plain", self._parsing(self.plain)),
            "hf": lambda: ParseContender("hf", self._hf({})),
            "hf-prompt-lookup": lambda: ParseContender("hf-prompt-lookup", self._hf(lookup)),
            "prompt-lookup": lambda: ParseContender(
                "prompt-lookup", self._engine(lambda: PromptLookup(LOOKUP))
            ),
            "hsd-page": lambda: self.hsd("hsd-page", "page"),
            "hsd-page-relaxed": lambda: self.hsd("hsd-page-relaxed", "page", TAU),
            "hsd": lambda: self.hsd("hsd", "both"),
            "hsd-relaxed": lambda: self.hsd("hsd-relaxed", "both", TAU),
        }
        if self.pair.draft is not None:
            draft = self.pair.draft.model
            arms["speculative"] = lambda: ParseContender(
                "speculative", self._engine(lambda: Speculative(draft))
            )
        return arms

    def _pictures(self) -> list[int]:
        """Ids that stand for pixels; no text holds one."""
        names = ("image_token_id", "video_token_id")
        ids = (getattr(self.model.config, name, None) for name in names)
        return [token for token in ids if isinstance(token, int)]

    def hsd(self, name: str, stages: str, acceptance_threshold: float = 1.0) -> ParseContender:
        """A parser with drafts, fresh."""
        parser = self.parser(stages=stages, acceptance_threshold=acceptance_threshold)
        mode = EXACT if acceptance_threshold == 1 else RELAXED
        return ParseContender(name, self._parsing(parser), drafted=True, mode=mode)

    def _parsing(self, parser: PageParser) -> SheetParser:
        def parse(sheet: Sheet, draft: PageDraft | None) -> Spoken:
            with listening(self.model) as runs:
                began = time.perf_counter()
                parsed = parser(sheet.page, draft)
                took = time.perf_counter() - began
            page = runs[-1]  # regions come to their end within it
            stopped = parsed.truncated not in (None, LENGTH)
            return Spoken(
                text=parsed.raw,
                tokens=None if stopped else page.tokens[0],
                truncated=parsed.truncated,
                decode_seconds=parsed.seconds["decode"],
                e2e_seconds=took,
                stats=page.stats,
                regions=[run.stats for run in runs[:-1]],
                forwards=sum(run.stats.nfe for run in runs),
            )

        return parse

    def _engine(self, make: Callable[[], Method]) -> SheetParser:
        def run(sheet: Sheet, draft: PageDraft | None) -> Spoken:
            began = time.perf_counter()
            inputs, limit = self.inputs(sheet)
            (row,), stats = decode_rows(
                self.model, inputs, make(), limit, self.plain.settings.repetition,
                set(self.plain.eos),
            )  # fmt: skip
            text = self.text(row.tokens)
            took = time.perf_counter() - began
            return Spoken(
                text, row.tokens, row.truncated, stats.decode_seconds, took,
                stats=stats, forwards=stats.nfe,
            )  # fmt: skip

        return run

    def _hf(self, options: dict[str, Any]) -> SheetParser:
        def run(sheet: Sheet, draft: PageDraft | None) -> Spoken:
            began = time.perf_counter()
            inputs, limit = self.inputs(sheet)
            tokens, seconds, _ = hf_run(self.model, inputs, limit, **options)
            ended = bool(tokens) and tokens[-1] in self.plain.eos
            tokens = tokens[:-1] if ended else tokens
            spoken = self._cut(tokens, None if ended else LENGTH)
            took = time.perf_counter() - began
            return replace(spoken, decode_seconds=seconds, e2e_seconds=took)

        return run

    def inputs(self, *sheets: Sheet) -> tuple[dict[str, Any], int]:
        """The model's inputs for some pages, and how much each may say."""
        pictures = [sheet.page.picture for sheet in sheets]
        made = picture_inputs(self.pair.target.processor, pictures, self.plain.ask.page, self.model)
        return made, room_for(self.model, made, self.settings.max_new_tokens)

    def plainly(self, sheets: Sequence[Sheet]) -> list[Spoken]:
        """Plain decoding of several pages of one size at once, where nobody times it."""
        inputs, limit = self.inputs(*sheets)
        rows, _ = decode_rows(self.model, inputs, Autoregressive(), limit, 0, set(self.plain.eos))
        return [self._cut(row.tokens, row.truncated) for row in rows]

    def _cut(self, tokens: list[int], truncated: str | None) -> Spoken:
        """What is left of a text that nothing has stopped where it repeats itself."""
        if (stop := runaway(tokens, self.plain.settings.repetition)) is not None:
            tokens, truncated = tokens[: stop[0]], REPETITION
        return Spoken(self.text(tokens), tokens, truncated, 0.0, 0.0)

    def text(self, tokens: list[int]) -> str:
        return str(self.pair.target.tokenizer.decode(tokens, skip_special_tokens=True))


def runaway(tokens: Sequence[int], limit: int) -> tuple[int, int] | None:
    """Return how many tokens a runaway text has where it is stopped, and how many are sound."""
    watch = RunawayWatch(limit)
    for count, token in enumerate(tokens, start=1):
        if watch.add(token):
            return count, watch.sound
    return None
