"""One page read by one arm: stage 1 on crops, stage 2 on the page, over the engine's own loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from transformers import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList

from sooner.decoding.loop import run
from sooner.documents import PageDraft
from sooner.methods import HSD, Autoregressive, Method
from sooner.methods.aligned import Experience
from sooner.stats.run import Stats
from sooner.tasks.parse.contexts import (
    Piece,
    decoded,
    page_drafts,
    pieces_of,
    region_drafts,
    region_pieces,
    with_region_texts,
)
from sooner.tasks.parse.crops import SPARE, TIMES, unsure
from sooner.tasks.parse.decoding import DecodedRow, RowListener
from sooner.tasks.parse.forms import FORMS, Ask
from sooner.tasks.parse.settings import ParseSettings

from .drafting import ScannedPage
from .literal import LiteralHSD
from .scripted import ScriptedTarget

MARKDOWN = Ask("read", "markdown")
DOTS = Ask("read", "dots", region_form="dots-text")
ASKS = {"markdown": MARKDOWN, "dots": DOTS}

WORDS = 16
"""Tokens of a prompt that are no pixels."""

ROWS = 16
"""Crops of a batch."""

SURE = ParseSettings().sure
"""Of `hsd-unsure`: what `sooner parse` does by default."""

PERIOD = 4
"""Tokens that a runaway repeats for ever."""


@dataclass(frozen=True)
class RegionNoise:
    """How what the target says about a crop differs from what it says about the page.

    Attributes:
        rate: chance of each token to be another one, the issue's epsilon.
        runaway: chance of a crop's text to repeat itself from somewhere on.
    """

    rate: float = 0.01
    runaway: float = 0.005

    def __call__(self, ids: Sequence[int], vocab: int, rng: np.random.Generator) -> list[int]:
        said = list(ids)
        for place in np.flatnonzero(rng.random(len(said)) < self.rate):
            said[place] = int(rng.integers(1, vocab))
        if said and rng.random() < self.runaway:
            start = int(rng.integers(len(said)))
            period = (said[max(start - PERIOD, 0) : start] or said[:1]) * 2000
            said = said[:start] + period[:2000]
        return said


@dataclass(frozen=True)
class PageArm:
    """A contender.

    Attributes:
        name: of it.
        make: the method, given drafts and what earlier pages taught; `None`: plain decoding.
        stages: 2 reads regions first.
        visual: tokens of the page's picture.
        sure: confidence of OCR above which stage 1 leaves a region out, as `ParseSettings.sure`; 1
            reads all of them.
    """

    name: str
    make: Callable[[Any, Experience], Method] | None
    stages: int = 1
    visual: int = 1500
    sure: float = 1.0


def arms(visual: int, pruned: int, nodes: int | str) -> list[PageArm]:
    """Every arm, plain first; `nodes` of the trees of this library's."""

    def ours(drafts: Any, experience: Experience) -> Method:
        return HSD(drafts, nodes=nodes, experience=experience)  # type: ignore[arg-type]

    def literal(drafts: Any, experience: Experience) -> Method:
        return LiteralHSD.of(drafts)

    return [
        PageArm("plain", None, visual=visual),
        PageArm("paper-literal", literal, visual=visual),
        PageArm("paper-literal-both", literal, 2, visual),
        PageArm("hsd-page", ours, visual=visual),
        PageArm("hsd", ours, 2, visual),
        PageArm("hsd-unsure", ours, 2, visual, SURE),
        PageArm("plain-pruned", None, visual=pruned),
        PageArm("hsd-pruned", ours, 2, pruned),
    ]


@dataclass(frozen=True)
class PageReading:
    """What an arm did on a page.

    Attributes:
        tokens: said, without the end.
        stats: of the pass over the page.
        regions: of stage 1's batches, with the prompts of each.
        prompt: tokens of the page's prompt.
        stage_text: regions put together as stage 1 read them; `None` without it.
    """

    tokens: list[int]
    stats: Stats
    prompt: int
    regions: list[tuple[Stats, list[int]]] = field(default_factory=list)
    stage_text: str | None = None

    @property
    def accepted(self) -> int:
        """Draft tokens accepted on the page."""
        return sum(count * many for count, many in self.stats.acceptance_histogram.items())

    @property
    def steps(self) -> int:
        """Forwards of the page that verified, or might have (eq. 14): all but the prefill."""
        return sum(self.stats.acceptance_histogram.values())


class PageReader:
    """Reads pages with a scripted target.

    Args:
        target: whose shapes do the work.
        tokenizer: of the texts.
        noise: of crops.
        form: `markdown`, or `dots` for a target that writes boxes.
        seed: of the noise.
    """

    def __init__(
        self,
        target: ScriptedTarget,
        tokenizer: Any,
        noise: RegionNoise,
        form: str = "markdown",
        seed: int = 0,
    ) -> None:
        self.target, self.tokenizer, self.noise = target, tokenizer, noise
        self.ask, self.seed = ASKS[form], seed
        self.eos = [int(tokenizer.eos_token_id)]
        self._learnt: dict[tuple[str, int], Experience] = {}

    def text(self, draft: PageDraft) -> str:
        """A page of these regions as the target writes it."""
        form = self.ask.form
        pieces = pieces_of(draft, form)
        whole = "".join(piece.texts[0] + piece.end for piece in pieces)
        first, last = pieces[0].region, pieces[-1].region
        return FORMS[form].start(first) + whole + FORMS[form].end(last)

    def ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def __call__(self, scanned: ScannedPage, draft: PageDraft, arm: PageArm) -> PageReading:
        """Read a page with a draft of it."""
        says = self.ids(self.text(scanned.truth()))
        prompt = arm.visual + WORDS
        if arm.make is None:
            (row,), stats = self._run([prompt], [says], Autoregressive(), [len(says) + SPARE], [0])
            return PageReading(row.tokens, stats, prompt)
        heard: dict[int, str] = {}
        runs: list[tuple[Stats, list[int]]] = []
        text = None
        if arm.stages == 2:
            heard, runs, text = self._regions(scanned, draft, arm)
        pieces = pieces_of(draft, self.ask.form)
        whole = with_region_texts(pieces, heard, self.ask, draft)
        drafts = page_drafts(self.tokenizer, whole, self.ask.form, self.eos) if whole else []
        method = arm.make([drafts], self._experience(arm, 2))
        (row,), stats = self._run([prompt], [says], method, [len(says) + SPARE], [0])
        return PageReading(row.tokens, stats, prompt, runs, text)

    def _experience(self, arm: PageArm, stage: int) -> Experience:
        return self._learnt.setdefault((arm.name, stage), Experience())

    def _regions(
        self, scanned: ScannedPage, draft: PageDraft, arm: PageArm
    ) -> tuple[dict[int, str], list[tuple[Stats, list[int]]], str]:
        """Stage 1: texts by piece, figures, and the regions put together."""
        assert arm.make is not None
        written = scanned.written
        rng = np.random.default_rng([self.seed, 3, written.number, len(written.kind)])
        pieces = [one for one in region_pieces(draft, self.ask) if one.region.bbox and one.texts[0]]
        if arm.sure < 1:
            pieces = unsure(pieces, arm.sure)
        heard: dict[int, str] = {}
        told, runs = dict[int, str](), list[tuple[Stats, list[int]]]()
        for start in range(0, len(pieces), ROWS):
            batch = pieces[start : start + ROWS]
            prompts = [self._crop_tokens(scanned, piece, arm.visual) for piece in batch]
            says = [self._crop_says(scanned, piece, rng) for piece in batch]
            drafts = [region_drafts(self.tokenizer, piece, self.eos) for piece in batch]
            own = [max(map(len, one), default=0) for one in drafts]
            limits = [TIMES * each + SPARE for each in own]
            method = arm.make([[one] for one in drafts], self._experience(arm, 1))
            rows, stats = self._run(prompts, says, method, limits, [each + SPARE for each in own])
            runs.append((stats, prompts))
            for piece, row in zip(batch, rows, strict=True):
                form = self.ask.about(piece.region).form
                said = row.tokens[: row.sound]
                told[piece.place] = decoded(self.tokenizer, said, form, self.eos)
                if row.truncated is None and told[piece.place]:
                    heard[piece.place] = told[piece.place]
        return heard, runs, "\n\n".join(told[place] for place in sorted(told))

    def _crop_tokens(self, scanned: ScannedPage, piece: Piece, visual: int) -> int:
        """Tokens of a crop's prompt: its share of the page's pixels."""
        assert piece.region.bbox is not None
        x0, y0, x1, y1 = piece.region.bbox
        width, height = scanned.size
        return WORDS + max(4, round(visual * (x1 - x0) * (y1 - y0) / (width * height)))

    def _crop_says(self, scanned: ScannedPage, piece: Piece, rng: np.random.Generator) -> list[int]:
        """What the target says about a crop: what is on it, with noise."""
        assert piece.region.bbox is not None
        shown = scanned.shown(piece.region.bbox)
        form = self.ask.about(piece.region).form
        parts = pieces_of(PageDraft(shown, 0.0, "", scanned.size), form)
        ids = self.ids("".join(part.texts[0] + part.end for part in parts))
        return self.noise(ids, len(self.tokenizer), rng)

    def _run(
        self,
        prompts: Sequence[int],
        says: Sequence[Sequence[int]],
        method: Method,
        limits: list[int],
        repetition: list[int],
    ) -> tuple[list[DecodedRow], Stats]:
        inputs = self.target.says(prompts, says, self.eos[0])
        listener = RowListener(limits, repetition, set(self.eos))
        options = listener.options
        criteria = StoppingCriteriaList(
            [
                *options["stopping_criteria"],
                EosTokenCriteria(self.eos),
                MaxLengthCriteria(max(prompts) + max(limits)),
            ]
        )
        session = method.session(
            self.target, inputs, criteria=criteria, on_tokens=options["on_tokens"]
        )
        run(session)
        return listener.finished(), session.stats
