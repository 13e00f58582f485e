"""`PageParser`: parses a page with drafts that are verified on regions, then on the whole page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...documents import Page, PageDraft
from ...engine.stats.run import APPROXIMATE, EXACT, Stats
from ...methods.aligned import Experience
from ..loading import ModelPair
from ..prefill import build_prefill
from ..settings import CaptionSettings
from .answers import Reading, described, read
from .budget import FIRST, MIN_FORWARDS, PageCost, PageCosts, StageBudget
from .decoder import DecodeRequest, Drafts, PageDecoder, SingleDecoder, run_now
from .decoding import DecodedRow, combined, eos_ids, figures
from .drafting import Drafting
from .effort import Effort, NotSmallerError, with_less
from .forms import FamilyPrompts
from .habits import ask_of, known_ask
from .model_inputs import Cells, cells_of, message_of, picture_inputs, room_for, seen_size
from .regions import RegionStage, Verified
from .result import (
    LENGTH,
    PARTIAL,
    REPETITION,
    SUCCESS,
    TIME,
    Late,
    ParsedPage,
    StageStats,
    parsed_region,
)
from .settings import ParseSettings
from .stages import BOTH, PAGE, StageChoice


@dataclass(frozen=True)
class _Seen:
    """A page as the model's inputs.

    Attributes:
        inputs: of one row.
        size: width and height in which the model says boxes, if that can be told.
        cells: its raster of visual tokens, if it has one.
        seconds: that its processor took.
    """

    inputs: dict[str, Any]
    size: tuple[int, int] | None
    cells: Cells | None
    seconds: float

    @property
    def width(self) -> int:
        """Tokens of the prompt."""
        return int(self.inputs["input_ids"].shape[1])


class PageParser:
    """Parses pages with one model (hierarchical speculative decoding, section 3.1).

    At acceptance threshold 1 a page's text is what plain decoding gives, whatever was drafted.
    Acceptance and costs measured on a page are used to plan the next one.

    Args:
        pair: the model, see `load_parser`; its draft is not used.
        settings: how.

    Raises:
        SoonerError: the model's processor has no chat template, or its `sooner.json` is broken.
    """

    def __init__(self, pair: ModelPair, settings: ParseSettings | None = None) -> None:
        self.pair, self.target = pair, pair.target
        self.settings = settings or ParseSettings()
        parse_settings = self.settings
        kind = getattr(pair.target.model.config, "model_type", "")
        known = known_ask(pair.target.name, kind, parse_settings.family)
        self.ask = ask_of(
            kind,
            known or (FamilyPrompts(pair.prompt) if pair.prompt else None),
            parse_settings.prompt,
            parse_settings.region_prompt,
            parse_settings.form,
        )
        message_of(self.target.processor, self.ask.page, self.ask.template)
        self.eos = eos_ids(self.target.model)
        self.experience = Experience()
        # Drafts of the first stage are a pipeline's, those of the second are the target's own.
        self.regions = RegionStage(self.target, parse_settings, self.ask, Experience())
        self.choice, self.costs = StageChoice(), PageCosts()

    def __call__(self, page: Page, draft: PageDraft | Late | None = None) -> ParsedPage:
        """Parse a page.

        Args:
            page: its picture.
            draft: what drafters say of it, or a function that waits for that: it is called once the
                page is prefilled. Without, and where it is empty, the page is decoded plainly.

        If memory runs out, the page is tried again with less (`effort.py`), noted in its result.

        Raises:
            MemoryRanOutError: the least was too much.
            SoonerError: the page does not fit the model.
        """
        return run_now(self.parse(page, draft, SingleDecoder(self.target.model, set(self.eos))))

    async def parse(
        self, page: Page, draft: PageDraft | Late | None, decoder: PageDecoder
    ) -> ParsedPage:
        """Parse a page with what decodes it; raises as a call does.

        Several pages may be under way, in one thread.
        """
        stages = self._stages(is_drafted=draft is not None)
        widths: list[int] = []  # tokens of the prompts that were tried
        has_regions = stages != PAGE and draft is not None

        async def attempt(effort: Effort) -> ParsedPage:
            regions = self.regions if effort.regions and stages != PAGE else None
            drafting = Drafting(
                page, draft, self.ask, regions, self.target.tokenizer, self.eos, decoder
            )
            return await self._attempt(drafting, stages, effort, widths)

        return await with_less(attempt, has_regions)

    async def _attempt(
        self, drafting: Drafting, stages: str, effort: Effort, widths: list[int]
    ) -> ParsedPage:
        """Parse a page, however much memory that takes.

        Args:
            widths: tokens of the prompts that memory did not suffice for; this one's is added.

        Raises:
            NotSmallerError: a smaller picture makes no shorter prompt.
        """
        page = drafting.page
        drafting.notes += effort.report(page)
        if stages == "regions" and drafting.regions is not None:
            await drafting.first_stage(self._see(page, effort).cells)
            if drafting.verified.output:
                return self._assembled(drafting)
            drafting.regions = None
            drafting.notes.append("no regions to parse; the page was parsed as a whole")
        seen = self._see(page, effort)
        if effort.scale < 1 and widths and seen.width >= min(widths):
            raise NotSmallerError
        widths.append(seen.width)
        parsed = await self._page(drafting, seen)
        if effort.scale < 1:
            parsed = replace(parsed, mode=APPROXIMATE)
        return parsed

    def _learn(self, drafting: Drafting, parsed: ParsedPage, slot_seconds: float) -> None:
        """Record a page's costs; without crops read in stage 1, as a page of stage 2 alone."""
        last = parsed.last
        way = BOTH if drafting.verified.runs else PAGE
        if not parsed.counts_for_speed:
            self.choice.add(way, 0, 0.0)
            return
        self.choice.add(way, last.tokens, parsed.seconds["regions"] + last.decode_seconds)
        self.costs.add(PageCost(drafting.letters, last.steps, last.decode_seconds, slot_seconds))

    def _stages(self, is_drafted: bool) -> str:
        """Returns which stages this page goes through."""
        settings = self.settings
        if settings.stages != "auto":
            return settings.stages
        if settings.acceptance_threshold < 1 or not is_drafted:
            return BOTH
        return self.choice.pick()

    def _see(self, page: Page, effort: Effort) -> _Seen:
        began = time.perf_counter()
        target, picture = self.target, effort.picture(page)
        inputs = picture_inputs(
            target.processor, [picture], self.ask.page, target.model, self.ask.template
        )
        cells = cells_of(target.processor, inputs)
        took = time.perf_counter() - began
        return _Seen(inputs, seen_size(target.model, inputs), cells, took)

    async def _page(self, drafting: Drafting, seen: _Seen) -> ParsedPage:
        """Returns stage 2: one pass over the page, with what there is as an unordered set of
        drafts.

        Where nothing else is decoded, vision and prefill come first, and what is drafted is waited
        for behind them; then stage 1 has its turn.
        """
        page, settings = drafting.page, self.settings
        limit = room_for(self.target.model, seen.inputs, settings.max_new_tokens)
        caption_settings = CaptionSettings(prefill=settings.prefill)
        prefill = build_prefill(caption_settings, self.pair, seen.inputs)
        # What earlier pages taught chooses the nodes, on which the text depends below 1.
        experience = self.experience if settings.acceptance_threshold == 1 else None
        request = DecodeRequest(
            PAGE,
            seen.inputs,
            limits=[limit],
            repetition=[settings.repetition],
            verification={
                **settings.verification,
                "experience": experience,
                "drafter": lambda: drafting.drafter,
            },
            prefill=prefill,
            seconds=settings.timeout,
        )
        if drafting.is_none:
            pass
        elif prefill is None:
            request = replace(request, late=partial(self._drafts, drafting, seen))
        else:  # a sparse prefill would be stage 1's, too
            drafts = await self._drafts(drafting, seen, 0.0)
            request = replace(request, drafts=None if drafting.is_empty else drafts)
        (result,) = await drafting.decoder.decode([request])
        await drafting.wait()
        (output,), stats = result.rows, result.stats
        mode = stats.mode  # a short page may have been prefilled densely after all
        if drafting.is_empty and prefill is None:  # nothing to be tolerant about
            mode = EXACT
        raw = drafting.text(output.tokens)
        is_sound = output.sound == len(output.tokens)
        text = raw if is_sound else drafting.text(output.tokens[: output.sound])
        draft, verified = drafting.draft, drafting.verified
        reading = read(text, self.ask.form, draft, page.size, seen.size)
        status, reason = _judged(output, reading, limit, settings.timeout, self.ask.form)
        runs = [*verified.runs, stats]
        parsed = ParsedPage(
            source=page.source.name,
            number=page.number,
            status=status,
            reason=reason,
            markdown=reading.markdown,
            raw=raw,
            regions=described(reading, output, raw, self.target.tokenizer, page.size),
            size=page.size,
            truncated=output.truncated,
            repaired=reading.repaired,
            drafter=draft.drafter,
            notes=drafting.notes,
            mode=mode,
            stages={
                **_first_figures(verified),
                "page": replace(figures(stats, [output], mode), mode=mode),
            },
            seconds=_seconds(runs, drafting, seen.seconds),
        )
        if not drafting.is_empty:
            prefilled = stats.seconds["vision"] + stats.seconds["prefill"]
            self._learn(drafting, parsed, prefilled / seen.width)
        return parsed

    async def _drafts(self, drafting: Drafting, seen: _Seen, prefilled: float | None) -> Drafts:
        """The drafts of stage 2, once stage 1 had its turn."""
        await drafting.wait()
        budget = self._budget(drafting, seen, prefilled)
        return [await drafting.groups(seen.size, seen.cells, budget)]

    def _budget(
        self, drafting: Drafting, seen: _Seen, prefilled: float | None
    ) -> StageBudget | None:
        """Returns what stage 1 may spend on a page: no more than the page alone is expected to
        cost.

        Where it is not asked for by name, that is a share of what the cheapest of recent pages
        cost, until it has been seen to pay. Below threshold 1 the text depends on it, so that
        neither the clock nor earlier pages may influence it.

        Args:
            prefilled: seconds that the page's prefill took, 0 for unknown; `None`: it is still to
                come, and will take what recent pages' did.
        """
        if drafting.regions is None:
            return None
        letters, settings, clock = drafting.letters, self.settings, drafting.decoder.clock
        if settings.acceptance_threshold < 1:
            return StageBudget(max(round(FIRST * letters), MIN_FORWARDS), clock=clock)
        slot = self.costs.slot_seconds if prefilled is None else prefilled / seen.width
        prefilled = slot * seen.width
        if settings.stages == "auto":
            cost, share = self.costs.minimum(letters), self.choice.share
            seconds = share * (prefilled + cost.seconds)
            return StageBudget(int(share * cost.forwards), seconds, slot, clock=clock)
        cost = self.costs.usual(letters)
        limit = prefilled + cost.seconds if cost.seconds else None
        return StageBudget(max(cost.forwards, MIN_FORWARDS), limit, slot, clock=clock)

    def _assembled(self, drafting: Drafting) -> ParsedPage:
        """Regions put one behind the other, as drafters order them; no pass over the page."""
        page, draft = drafting.page, drafting.draft
        pieces, verified = drafting.pieces, drafting.verified
        regions, shares, blocks = [], [], ""
        cut = [output.truncated for output in verified.output.values() if output.truncated]
        for piece in pieces:
            output = verified.output.get(piece.place)
            tokens = None if output is None else output.tokens[: output.sound]
            text = drafting.region_text(piece, tokens)
            if text:
                blocks += text + (piece.end or "\n")
                regions.append(replace(piece.region, drafts=[text]))
                shares.append(
                    sum(output.drafted) / len(output.drafted) if output and output.drafted else None
                )
        return ParsedPage(
            source=page.source.name,
            number=page.number,
            status=PARTIAL if cut else SUCCESS,
            reason=f"{len(cut)} of {len(pieces)} regions did not come to an end" if cut else "",
            markdown=blocks,
            raw=blocks,
            regions=[
                parsed_region(region, order, page.size, share)
                for order, (region, share) in enumerate(zip(regions, shares, strict=True))
            ],
            size=page.size,
            truncated=cut[0] if cut else None,
            drafter=draft.drafter,
            notes=drafting.notes,
            mode=APPROXIMATE,
            stages=_first_figures(verified),
            seconds=_seconds(verified.runs, drafting, 0.0),
        )


def _first_figures(verified: Verified) -> dict[str, StageStats]:
    """Returns the statistics of stage 1, if it ran: batches put together."""
    return {"regions": combined(verified.runs)} if verified.runs else {}


def _seconds(runs: Sequence[Stats], drafting: Drafting, processor: float) -> dict[str, float]:
    verified = drafting.verified
    return {
        "wait": drafting.waited,
        "processor": processor + verified.seconds["processor"],
        "vision": sum(run.seconds["vision"] for run in runs),
        "prefill": sum(run.seconds["prefill"] for run in runs),
        "decode": sum(run.decode_seconds for run in runs),
        "regions": verified.seconds["regions"],
    }


def _judged(
    output: DecodedRow, reading: Reading, limit: int, seconds: float | None, form: str
) -> tuple[str, str]:
    """Returns status and reason."""
    if output.truncated == REPETITION:
        return PARTIAL, f"stopped after {len(output.tokens)} tokens: the text repeats itself"
    if output.truncated == LENGTH:
        return PARTIAL, f"cut after {limit} tokens; raise --max-new-tokens"
    if output.truncated == TIME:
        return PARTIAL, f"cut after {len(output.tokens)} tokens and {seconds:g} s; raise --timeout"
    if reading.repaired:
        what = "valid JSON" if form.startswith("dots") else f"valid '{form}'"
        return PARTIAL, f"the answer is no {what}; it was read as far as possible"
    return SUCCESS, ""
