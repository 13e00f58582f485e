"""`PageParser`: parses a page with drafts that are verified on regions, then on the whole page.

The way of a page: the processor makes the model's inputs, stage 1 reads the regions that the
drafter is unsure of on crops (`regions`), stage 2 decodes the page with all of that as drafts
(`contexts`), and the answer is read (`answers`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...documents import Page, PageDraft
from ...engine.stats.run import APPROXIMATE, EXACT, Stats
from ...errors import MemoryRanOutError, is_out_of_memory
from ...methods.aligned import Experience
from ..loading import ModelPair
from ..prefill import build_prefill
from ..settings import CaptionSettings
from .answers import Reading, described, read, region_markdown
from .contexts import (
    Piece,
    decoded,
    page_drafts,
    pieces_of,
    region_pieces,
    with_region_texts,
)
from .decoding import (
    DecodedRow,
    DecodeRequest,
    DecodeResult,
    PageDecoder,
    combined,
    eos_ids,
    figures,
    release,
    run_now,
)
from .forms import FamilyPrompts
from .habits import ask_of, known_habits
from .model_inputs import Cells, cells_of, message_of, picture_inputs, room_for, seen_size
from .regions import RegionStage, Verified
from .result import (
    LENGTH,
    PARTIAL,
    REPETITION,
    SUCCESS,
    TIME,
    ParsedPage,
    ParsedRegion,
    StageStats,
    parsed_region,
)
from .settings import ParseSettings
from .stages import BOTH, PAGE, PageCost, StageBudget, StageChoice

NO_DRAFT = PageDraft([])


@dataclass
class _Work:
    """A page under way.

    Attributes:
        page: its picture.
        draft: what drafters say of it; empty for nothing.
        decoder: of the page.
        notes: what went wrong.
        verified: what stage 1 made of `pieces`.
    """

    page: Page
    draft: PageDraft
    decoder: PageDecoder
    notes: list[str]
    pieces: list[Piece] = field(default_factory=list)
    verified: Verified = field(default_factory=Verified)

    @property
    def letters(self) -> int:
        """How many were drafted, the best draft of each region."""
        return sum(len(region.drafts[0]) for region in self.draft.regions if region.drafts)

    @property
    def drafter(self) -> str:
        """By whose name `HSD` keeps what it learns of the page's drafts; empty for nobody's."""
        name = self.draft.drafter
        # Where stage 1 read something, most drafts are the target's own.
        return f"{name}, read on crops" if name and self.verified.runs else name


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
        self.settings = parse_settings = settings or ParseSettings()
        kind = getattr(pair.target.model.config, "model_type", "")
        known = known_habits(pair.target.name, kind, parse_settings.family).ask
        self.ask = ask_of(
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
        self.choice = StageChoice()

    def __call__(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        """Parse a page.

        Args:
            page: its picture.
            draft: what drafters say of it. Without, and where it is empty, the page is decoded
                plainly.

        Raises:
            MemoryRanOutError: memory ran out.
            SoonerError: the page does not fit the model.
        """
        return run_now(self.parse(page, draft, PageDecoder(self.target.model, set(self.eos))))

    async def parse(self, page: Page, draft: PageDraft | None, decoder: PageDecoder) -> ParsedPage:
        """Parse a page with what decodes it; raises as a call does.

        Several pages may be under way, in one thread.
        """
        try:
            return await self._parse(page, draft, decoder)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = " ".join(str(error).split())[:200] or type(error).__name__
        release()  # outside of the handler: the error's frames held what was allocated
        raise MemoryRanOutError(
            f"memory ran out ({reason}); lower --dpi or --max-new-tokens, or use a smaller model"
        )

    def _stages(self, is_drafted: bool) -> str:
        """Returns which stages this page goes through."""
        settings = self.settings
        if settings.stages != "auto":
            return settings.stages
        if settings.acceptance_threshold < 1 or not is_drafted:
            return BOTH
        return self.choice.pick()

    async def _parse(self, page: Page, draft: PageDraft | None, decoder: PageDecoder) -> ParsedPage:
        stages, call = self._stages(is_drafted=draft is not None), decoder.call
        work = _Work(page, draft or NO_DRAFT, decoder, _notes(draft or NO_DRAFT))
        seen = await call(self._see, page)
        if stages != PAGE and work.draft.regions:
            await self._read_regions(work, seen, is_result=stages == "regions")
        if stages == "regions":
            if work.verified.output:
                return await call(self._assembled, work)
            work.notes.append("no regions to parse; the page was parsed as a whole")
        request = await call(self._request, work, seen)
        (result,) = await work.decoder.decode([request])
        return await call(self._parsed, work, seen, request, result)

    def _see(self, page: Page) -> _Seen:
        began = time.perf_counter()
        target = self.target
        inputs = picture_inputs(
            target.processor, [page.picture], self.ask.page, target.model, self.ask.template
        )
        cells = cells_of(target.processor, inputs)
        took = time.perf_counter() - began
        return _Seen(inputs, seen_size(target.model, inputs), cells, took)

    async def _read_regions(self, work: _Work, seen: _Seen, is_result: bool) -> None:
        """Stage 1, within its budget; there is none where what it reads is the result."""
        settings, clock, budget = self.settings, work.decoder.clock, None
        if not is_result:
            is_measured = settings.stages == "auto" and settings.acceptance_threshold == 1
            budget = (
                self.choice.budget(work.letters, seen.width, clock)
                if is_measured
                else StageBudget.fixed(work.letters)
            )
            if not budget.is_enough:
                return
        work.pieces = region_pieces(work.draft, self.ask)
        work.verified = await self.regions(work.page, work.pieces, work.decoder, seen.cells, budget)
        if work.verified.reason:
            work.notes.append(f"stage 1 was left out: {work.verified.reason}")

    def _request(self, work: _Work, seen: _Seen) -> DecodeRequest:
        """Returns stage 2: one pass over the page, with what there is as an unordered set of
        drafts.
        """
        settings, form = self.settings, self.ask.form
        limit = room_for(self.target.model, seen.inputs, settings.max_new_tokens)
        caption_settings = CaptionSettings(prefill=settings.prefill)
        prefill = build_prefill(caption_settings, self.pair, seen.inputs)
        pieces, texts = pieces_of(work.draft, form, seen.size), work.verified.texts
        pieces = with_region_texts(pieces, texts, self.ask, work.draft, seen.size)
        drafts = page_drafts(self.target.tokenizer, pieces, form, self.eos) if pieces else []
        # What earlier pages taught chooses the nodes, on which the text depends below 1.
        experience = self.experience if settings.acceptance_threshold == 1 else None
        return DecodeRequest(
            PAGE,
            seen.inputs,
            limits=[limit],
            repetition=[settings.repetition],
            drafts=[drafts] if drafts else None,
            verification={
                **settings.verification,
                "experience": experience,
                "drafter": work.drafter,
            },
            prefill=prefill,
            seconds=settings.timeout,
        )

    def _parsed(
        self, work: _Work, seen: _Seen, request: DecodeRequest, result: DecodeResult
    ) -> ParsedPage:
        """Returns the page that the target's answer is of."""
        page, draft, verified = work.page, work.draft, work.verified
        form, tokenizer = self.ask.form, self.target.tokenizer
        (output,), stats = result.rows, result.stats
        mode = stats.mode  # a short page may have been prefilled densely after all
        if request.drafts is None and request.prefill is None:  # nothing to be tolerant about
            mode = EXACT
        raw = decoded(tokenizer, output.tokens, form, self.eos)
        is_sound = output.sound == len(output.tokens)
        sound = output.tokens[: output.sound]
        text = raw if is_sound else decoded(tokenizer, sound, form, self.eos)
        reading = read(text, form, draft, page.size, seen.size)
        status, reason = _judged(output, reading, request, form)
        parsed = ParsedPage(
            source=page.source.name,
            number=page.number,
            status=status,
            reason=reason,
            markdown=reading.markdown,
            raw=raw,
            regions=described(reading, output, raw, tokenizer, page.size),
            size=page.size,
            truncated=output.truncated,
            repaired=reading.repaired,
            drafter=draft.drafter,
            notes=work.notes,
            mode=mode,
            stages={
                **_first_figures(verified),
                "page": replace(figures(stats, [output], mode), mode=mode),
            },
            seconds=_seconds([*verified.runs, stats], work, seen.seconds),
        )
        if request.drafts is not None:
            self._learn(work, parsed, stats, seen.width)
        return parsed

    def _learn(self, work: _Work, parsed: ParsedPage, stats: Stats, width: int) -> None:
        """Record a page's costs; without crops read in stage 1, as a page of stage 2 alone."""
        last = parsed.last
        way = BOTH if work.verified.runs else PAGE
        if not parsed.counts_for_speed:
            self.choice.add(way, 0, 0.0)
            return
        slot = (stats.seconds["vision"] + stats.seconds["prefill"]) / width
        cost = PageCost(work.letters, last.steps, last.decode_seconds, slot)
        took = parsed.seconds["regions"] + last.decode_seconds
        self.choice.add(way, last.tokens, took, cost)

    def _assembled(self, work: _Work) -> ParsedPage:
        """Regions put one behind the other, as drafters order them; no pass over the page."""
        page, verified = work.page, work.verified
        regions, blocks = list[ParsedRegion](), ""
        cut = [output.truncated for output in verified.output.values() if output.truncated]
        for piece in work.pieces:
            output = verified.output.get(piece.place)
            text, share = self._region_text(piece, output), None
            if text:
                blocks += text + (piece.end or "\n")
                if output is not None and output.drafted:
                    share = sum(output.drafted) / len(output.drafted)
                region = replace(piece.region, drafts=[text])
                regions.append(parsed_region(region, len(regions), page.size, share))
        return ParsedPage(
            source=page.source.name,
            number=page.number,
            status=PARTIAL if cut else SUCCESS,
            reason=f"{len(cut)} of {len(work.pieces)} regions did not come to an end"
            if cut
            else "",
            markdown=blocks,
            raw=blocks,
            regions=regions,
            size=page.size,
            truncated=cut[0] if cut else None,
            drafter=work.draft.drafter,
            notes=work.notes,
            mode=APPROXIMATE,
            stages=_first_figures(verified),
            seconds=_seconds(verified.runs, work, 0.0),
        )

    def _region_text(self, piece: Piece, output: DecodedRow | None) -> str:
        """Returns what the target wrote about a region's crop, as Markdown; else its draft."""
        form, text = self.ask.about(piece.region).form, piece.texts[0]
        if output is not None:
            tokens = output.tokens[: output.sound]
            text = decoded(self.target.tokenizer, tokens, form, self.eos)
        return region_markdown(text, form, piece.region)


def _notes(draft: PageDraft) -> list[str]:
    """Returns what a page's record says of its drafter."""
    if not draft.reason:
        return []
    how = "" if draft.regions else "; decoded plainly"
    return [f"drafter {draft.drafter or 'none'}: {draft.reason}{how}"]


def _first_figures(verified: Verified) -> dict[str, StageStats]:
    """Returns the statistics of stage 1, if it ran: batches put together."""
    return {"regions": combined(verified.runs)} if verified.runs else {}


def _seconds(runs: Sequence[Stats], work: _Work, processor: float) -> dict[str, float]:
    verified = work.verified
    return {
        "processor": processor + verified.seconds["processor"],
        "vision": sum(run.seconds["vision"] for run in runs),
        "prefill": sum(run.seconds["prefill"] for run in runs),
        "decode": sum(run.decode_seconds for run in runs),
        "regions": verified.seconds["regions"],
    }


def _judged(
    output: DecodedRow, reading: Reading, request: DecodeRequest, form: str
) -> tuple[str, str]:
    """Returns status and reason."""
    if output.truncated == REPETITION:
        return PARTIAL, f"stopped after {len(output.tokens)} tokens: the text repeats itself"
    if output.truncated == LENGTH:
        return PARTIAL, f"cut after {request.limits[0]} tokens; raise --max-new-tokens"
    if output.truncated == TIME:
        after = f"{len(output.tokens)} tokens and {request.seconds:g} s"
        return PARTIAL, f"cut after {after}; raise --timeout"
    if reading.repaired:
        what = "valid JSON" if form.startswith("dots") else f"valid '{form}'"
        return PARTIAL, f"the answer is no {what}; it was read as far as possible"
    return SUCCESS, ""
