"""`PageParser`: parses a page with drafts that are verified on regions, then on the whole page.

The way of a page: the processor makes the model's inputs, stage 1 reads the regions that the
drafter is unsure of on crops (`regions`), stage 2 decodes the page with all of that as drafts
(`contexts`), and the answer is read (`answers`).
"""

from __future__ import annotations

import time
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
    eos_ids,
    release,
    run_now,
    stage_stats,
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
        inputs: the page as the model's inputs, of one row.
        size: width and height in which the model says boxes, if that can be told.
        cells: the model's raster of visual tokens, if it has one.
        processor: seconds that the page's inputs took.
        pieces: regions for stage 1.
        verified: what stage 1 made of them.
    """

    page: Page
    draft: PageDraft
    decoder: PageDecoder
    notes: list[str]
    inputs: dict[str, Any] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    cells: Cells | None = None
    processor: float = 0.0
    pieces: list[Piece] = field(default_factory=list)
    verified: Verified = field(default_factory=Verified)

    @property
    def letters(self) -> int:
        """How many were drafted, the best draft of each region."""
        return sum(len(region.drafts[0]) for region in self.draft.regions if region.drafts)

    @property
    def width(self) -> int:
        """Tokens of the prompt."""
        return int(self.inputs["input_ids"].shape[1])

    @property
    def drafter(self) -> str:
        """By whose name `HSD` keeps what it learns of the page's drafts; empty for nobody's."""
        name = self.draft.drafter
        # Where stage 1 read something, most drafts are the target's own.
        return f"{name}, read on crops" if name and self.verified.stats.rows else name

    def parsed(self, stats: Stats | None = None, **fields: Any) -> ParsedPage:
        """Returns the page with what became of it.

        Args:
            stats: of stage 2.
            fields: of `ParsedPage`.
        """
        page, verified = self.page, self.verified
        runs = [verified.stats, *([] if stats is None else [stats])]
        return ParsedPage(
            source=page.source.name,
            number=page.number,
            size=page.size,
            drafter=self.draft.drafter,
            notes=self.notes,
            seconds={
                "processor": self.processor + verified.processor,
                "vision": sum(run.seconds["vision"] for run in runs),
                "prefill": sum(run.seconds["prefill"] for run in runs),
                "decode": sum(run.decode_seconds for run in runs),
                "regions": verified.seconds,
            },
            **fields,
        )


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
        self.settings = settings = settings or ParseSettings()
        kind = getattr(pair.target.model.config, "model_type", "")
        known = known_habits(pair.target.name, kind, settings.family).ask
        self.ask = ask_of(
            known or (FamilyPrompts(pair.prompt) if pair.prompt else None),
            settings.prompt,
            settings.region_prompt,
            settings.form,
        )
        message_of(self.target.processor, self.ask.page, self.ask.template)
        self.eos = eos_ids(self.target.model)
        self.experience = Experience()
        self.regions = RegionStage(self.target, settings, self.ask)
        self.choice = StageChoice()
        # Below threshold 1 the text depends on stage 1, and is not to depend on the clock.
        self.is_measured = settings.stages == "auto" and settings.acceptance_threshold == 1

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

    async def _parse(self, page: Page, draft: PageDraft | None, decoder: PageDecoder) -> ParsedPage:
        stages = self.settings.stages
        if stages == "auto":
            stages = self.choice.ways.pick() if self.is_measured and draft is not None else BOTH
        work = _Work(page, draft or NO_DRAFT, decoder, _notes(draft or NO_DRAFT))
        await decoder.call(self._see, work)
        if stages != PAGE and work.draft.regions:
            await self._read_regions(work, is_result=stages == "regions")
        if stages == "regions":
            if work.verified.output:
                return await decoder.call(self._assembled, work)
            work.notes.append("no regions to parse; the page was parsed as a whole")
        request = await decoder.call(self._request, work)
        (result,) = await decoder.decode([request])
        return await decoder.call(self._parsed, work, request, result)

    def _see(self, work: _Work) -> None:
        """Make the page's inputs."""
        began, target = time.perf_counter(), self.target
        work.inputs = picture_inputs(
            target.processor, [work.page.picture], self.ask.page, target.model, self.ask.template
        )
        work.cells = cells_of(target.processor, work.inputs)
        work.size = seen_size(target.model, work.inputs)
        work.processor = time.perf_counter() - began

    async def _read_regions(self, work: _Work, is_result: bool) -> None:
        """Stage 1, within its budget; there is none where what it reads is the result."""
        budget = None
        if not is_result:
            budget = StageBudget.fixed(work.letters)
            if self.is_measured:
                budget = self.choice.budget(work.letters, work.width)
            if not budget.is_enough:
                return
        work.pieces = region_pieces(work.draft, self.ask)
        work.verified = await self.regions(work.page, work.pieces, work.decoder, work.cells, budget)
        if work.verified.reason:
            work.notes.append(f"stage 1 was left out: {work.verified.reason}")

    def _request(self, work: _Work) -> DecodeRequest:
        """Returns stage 2: one pass over the page, with what there is as an unordered set of
        drafts.
        """
        settings, form = self.settings, self.ask.form
        limit = room_for(self.target.model, work.inputs, settings.max_new_tokens)
        prefill = build_prefill(CaptionSettings(prefill=settings.prefill), self.pair, work.inputs)
        pieces, texts = pieces_of(work.draft, form, work.size), work.verified.texts
        pieces = with_region_texts(pieces, texts, self.ask, work.draft, work.size)
        drafts = page_drafts(self.target.tokenizer, pieces, form, self.eos) if pieces else []
        return DecodeRequest(
            PAGE,
            work.inputs,
            limits=[limit],
            repetition=[settings.repetition],
            drafts=[drafts] if drafts else None,
            verification={**settings.verification(self.experience), "drafter": work.drafter},
            prefill=prefill,
            seconds=settings.timeout,
        )

    def _parsed(self, work: _Work, request: DecodeRequest, result: DecodeResult) -> ParsedPage:
        """Returns the page that the target's answer is of."""
        page, form, tokenizer = work.page, self.ask.form, self.target.tokenizer
        (output,), stats = result.rows, result.stats
        mode = stats.mode  # a short page may have been prefilled densely after all
        if request.drafts is None and request.prefill is None:  # nothing to be tolerant about
            mode = EXACT
        raw = text = decoded(tokenizer, output.tokens, form, self.eos)
        if output.sound < len(output.tokens):
            text = decoded(tokenizer, output.tokens[: output.sound], form, self.eos)
        reading = read(text, form, work.draft, page.size, work.size)
        status, reason = _judged(output, reading, request, form)
        is_complete = output.truncated not in (REPETITION, TIME)
        parsed = work.parsed(
            stats,
            status=status,
            reason=reason,
            markdown=reading.markdown,
            raw=raw,
            regions=described(reading, output, raw, tokenizer, page.size),
            truncated=output.truncated,
            repaired=reading.repaired,
            mode=mode,
            stages={
                **_first_stage(work.verified),
                PAGE: replace(stage_stats(stats, is_complete), mode=mode),
            },
        )
        if request.drafts is not None:
            self._learn(work, parsed, stats)
        return parsed

    def _learn(self, work: _Work, parsed: ParsedPage, stats: Stats) -> None:
        """Record a page's costs; without crops read in stage 1, as a page of stage 2 alone."""
        last, way = parsed.last, BOTH if work.verified.stats.rows else PAGE
        if not parsed.counts_for_speed:
            self.choice.add(way, 0, 0.0)
            return
        slot = (stats.seconds["vision"] + stats.seconds["prefill"]) / work.width
        cost = PageCost(work.letters, last.steps, last.decode_seconds, slot)
        self.choice.add(way, last.tokens, parsed.seconds["regions"] + last.decode_seconds, cost)

    def _assembled(self, work: _Work) -> ParsedPage:
        """Regions put one behind the other, as drafters order them; no pass over the page."""
        verified, regions, blocks = work.verified, list[ParsedRegion](), ""
        cut = [output.truncated for output in verified.output.values() if output.truncated]
        for piece in work.pieces:
            output = verified.output.get(piece.place)
            text, share = self._region_text(piece, output), None
            if text:
                blocks += text + (piece.end or "\n")
                if output is not None and output.drafted:
                    share = sum(output.drafted) / len(output.drafted)
                region = replace(piece.region, drafts=[text])
                regions.append(parsed_region(region, len(regions), work.page.size, share))
        reason = f"{len(cut)} of {len(work.pieces)} regions did not come to an end"
        return work.parsed(
            status=PARTIAL if cut else SUCCESS,
            reason=reason if cut else "",
            markdown=blocks,
            raw=blocks,
            regions=regions,
            truncated=cut[0] if cut else None,
            mode=APPROXIMATE,
            stages=_first_stage(verified),
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


def _first_stage(verified: Verified) -> dict[str, StageStats]:
    """Returns the statistics of stage 1, if it ran."""
    return {"regions": stage_stats(verified.stats)} if verified.stats.rows else {}


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
