"""`PageParser`: parses a page with drafts that are verified on regions, then on the whole page.

The way of a page: the processor makes the model's inputs, stage 1 reads the regions that the
drafter is unsure of on crops (`regions`), stage 2 decodes the page with all of that as drafts
(`contexts`), and the answer is read (`answers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...documents import Page, PageDraft
from ...engine.stats.run import APPROXIMATE, EXACT
from ...errors import MemoryRanOutError, SoonerError, is_out_of_memory
from ...methods.aligned.alignment import Experience
from ...models.model_types import check_sees, model_type
from ...parity import end_ids
from ..loading import ModelPair, load_pair
from ..prefill import build_prefill
from ..settings import CaptionSettings
from .answers import Reading, described, read
from .contexts import (
    Piece,
    decoded,
    page_drafts,
    page_texts,
    pieces_of,
    region_pieces,
    with_region_texts,
)
from .decoding import (
    DecodedRow,
    DecodeRequest,
    DecodeResult,
    PageDecoder,
    release,
    run_now,
    stage_stats,
)
from .families import FORMS, GENERAL, FamilyPrompts, family_of
from .model_inputs import cells_of, message_of, picture_inputs, room_for
from .regions import BOTH, MIN_FORWARDS, PAGE, PageWork, RegionStage, StageChoice, fixed_forwards
from .result import LENGTH, PARTIAL, REPETITION, SUCCESS, TIME, ParsedPage, parsed_regions
from .settings import DEMO, MINIATURE, ParseSettings, parser_name

NO_DRAFT = PageDraft([])


class PageParser:
    """Parses pages with one model (hierarchical speculative decoding, section 3.1).

    At acceptance threshold 1 a page's text is what plain decoding gives, whatever was drafted.
    Acceptance and costs measured on a page are used to plan the next one.

    Args:
        pair: the model, see `load_parser`; its draft is not used.
        settings: how.

    Raises:
        SoonerError: the model's processor has no chat template, its `sooner.json` is broken, or the
            package that reads its form is missing.
    """

    def __init__(self, pair: ModelPair, settings: ParseSettings | None = None) -> None:
        self.pair, self.target = pair, pair.target
        self.settings = settings = settings or ParseSettings()
        kind = getattr(pair.target.model.config, "model_type", "")
        ask = family_of(pair.target.name, kind, settings.family).ask
        if ask is GENERAL and pair.prompt:
            ask = FamilyPrompts(pair.prompt)
        self.ask = ask.changed(settings.prompt, settings.region_prompt, settings.form)
        FORMS[self.ask.form].check()
        message_of(self.target.processor, self.ask.page, self.ask.template)
        self.eos = end_ids(self.target.model)
        self.experience = Experience()
        self.regions = RegionStage(self.target, settings, self.ask)
        self.choice = StageChoice()
        # Below threshold 1 the text depends on stage 1, and is not to depend on the clock.
        self.is_measured = settings.stages == "auto" and settings.acceptance_threshold == 1

    def __call__(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        """Parse a page.

        Args:
            page: its picture.
            draft: what drafters say of it. Without, and where it is empty, decoding is plain.

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
        work = PageWork(page, draft or NO_DRAFT, decoder, self._notes(page, draft or NO_DRAFT))
        await decoder.call(self._see, work)
        if stages != PAGE and work.draft.regions:
            await self._read_regions(work, is_result=stages == "regions")
        if stages == "regions":
            if work.output:
                return await decoder.call(self._assembled, work)
            work.notes.append("no regions to parse; the page was parsed as a whole")
        request = await decoder.call(self._request, work)
        (result,) = await decoder.decode([request])
        return await decoder.call(self._parsed, work, request, result)

    def _notes(self, page: Page, draft: PageDraft) -> list[str]:
        """Returns what a page's record says of the drafter, and of a model that is a toy."""
        notes = self.pair.foreign(page.source)
        if draft.reason:
            how = "" if draft.regions else "; decoded plainly"
            notes.append(f"drafter {draft.drafter or 'none'}: {draft.reason}{how}")
        return notes

    def _see(self, work: PageWork) -> None:
        """Make the page's inputs."""
        target = self.target
        work.inputs = picture_inputs(
            target.processor, [work.page.picture], self.ask.page, target.model, self.ask.template
        )
        work.cells = cells_of(target.processor, work.inputs)

    async def _read_regions(self, work: PageWork, is_result: bool) -> None:
        """Stage 1, within its budget; there is none where what it reads is the result."""
        if not is_result:
            work.forwards = fixed_forwards(work.letters)
            if self.is_measured:
                slots = int(work.inputs["input_ids"].shape[1])
                work.forwards, work.slots = self.choice.budget(work.letters, slots)
            if work.forwards < MIN_FORWARDS:
                return
        work.pieces = region_pieces(work.draft, self.ask)
        await self.regions(work)

    def _request(self, work: PageWork) -> DecodeRequest:
        """Returns stage 2: one pass over the page, with an unordered set of drafts."""
        settings, form = self.settings, self.ask.form
        limit = room_for(self.target.model, work.inputs, settings.max_new_tokens)
        prefill = build_prefill(CaptionSettings(prefill=settings.prefill), self.pair)
        pieces = self._pieces(work)
        drafts = page_drafts(self.target.tokenizer, pieces, form, self.eos) if pieces else []
        return DecodeRequest(
            work.inputs,
            limits=[limit],
            repetition=[settings.repetition],
            drafts=[drafts] if drafts else None,
            verification={**settings.verification(self.experience), "drafter": work.drafter},
            prefill=prefill,
            verify_every=settings.verify_every,
            seconds=settings.timeout,
        )

    def _pieces(self, work: PageWork) -> list[Piece]:
        """Returns the drafts of a page, what stage 1 read before those that it read."""
        pieces = pieces_of(work.draft, self.ask.form, work.size)
        return with_region_texts(pieces, work.texts, self.ask, work.draft, work.size)

    def _parsed(self, work: PageWork, request: DecodeRequest, result: DecodeResult) -> ParsedPage:
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
            form=form,
            truncated=output.truncated,
            repaired=reading.repaired,
            mode=mode,
            prefill=request.prefill.as_dict() if request.prefill is not None else None,
            stages={PAGE: replace(stage_stats(stats, is_complete), mode=mode)},
        )
        if request.drafts is not None:
            self._learn(work, parsed)
        return parsed

    def _learn(self, work: PageWork, parsed: ParsedPage) -> None:
        """Record a page's costs; without crops read in stage 1, as a page of stage 2 alone."""
        last, way = parsed.last, BOTH if work.stats.rows else PAGE
        if not parsed.counts_for_speed:
            self.choice.add(way, 0, 0.0)
            return
        seconds = parsed.seconds["regions"] + last.decode_seconds
        self.choice.add(way, last.tokens, seconds, work.letters, last.steps)

    def _assembled(self, work: PageWork) -> ParsedPage:
        """Regions put one behind the other, as drafters order them; no pass over the page."""
        pieces, form, size = self._pieces(work), self.ask.form, work.page.size
        cut = [output.truncated for output in work.output.values() if output.truncated]
        unread = sum(piece.place not in work.texts for piece in work.pieces)
        text = "".join(page_texts(pieces, form))
        regions = [replace(piece.region, drafts=piece.texts[:1]) for piece in pieces]
        reading = read(text, form, replace(work.draft, regions=regions), size, work.size)
        faults = {"did not come to an end": len(cut), "were not read and are drafts": unread}
        of = f"of {len(work.pieces)} regions"
        reasons = [f"{count} {of} {fault}" for fault, count in faults.items() if count]
        return work.parsed(
            status=PARTIAL if reasons else SUCCESS,
            reason="; ".join(reasons),
            markdown=reading.markdown,
            raw=text,
            regions=parsed_regions(reading.regions, size),
            form=form,
            truncated=cut[0] if cut else None,
            mode=APPROXIMATE,
            stages={},
        )


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


def load_parser(
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
) -> ModelPair:
    """Load a model that reads pages.

    Args:
        model: hub id or folder; `None` or `"miniature"` takes the bundled `document` miniature.
        trust_remote_code: run a checkpoint's own code, as that of dots.ocr.

    Raises:
        SoonerError: as `load_pair`, a model that reads text only, has no processor or is no causal
            one, or no miniature here.
    """
    name = parser_name(model)
    kind = model_type(name, trust_remote_code)
    check_sees(name, kind, "page")
    pair = load_pair(
        None if model == DEMO else model,
        device=device,
        dtype=dtype,
        miniature=MINIATURE,
        trust_remote_code=trust_remote_code,
    )
    if not hasattr(pair.target.processor, "image_processor"):
        raise SoonerError(
            f"model '{name}' of type '{kind}' comes with a tokenizer, but no processor of "
            "pictures; make its inputs by its own code and decode them by sooner.generate"
        )
    add_stops(pair.target.model, pair.target.tokenizer, family_of(name, kind).stops)
    return pair


def add_stops(model: Any, tokenizer: Any, stops: Sequence[str]) -> None:
    """Let a model's texts end at further tokens; those that its tokenizer lacks are left out."""
    config, unknown = model.generation_config, (None, tokenizer.unk_token_id)
    known = [tokenizer.convert_tokens_to_ids(stop) for stop in stops]
    ends = dict.fromkeys([*end_ids(model), *(token for token in known if token not in unknown)])
    if stops and ends:
        config.eos_token_id = list(ends)
