"""A page in, its text out: drafts verified on regions, then on the page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from ...decoding.stats import APPROXIMATE, Stats
from ...documents import Page, PageDraft
from ...errors import SoonerError
from ...methods import HSD, Autoregressive, Method
from ...methods.aligned import Experience
from ..loading import Pair
from ..prefill import build_prefill
from ..settings import CaptionSettings
from .asking import page_message, picture_inputs, room_for, seen_size
from .contexts import Piece, heard_pieces, page_drafts, pieces_of
from .forms import ask_of
from .reading import Reading, described, parsed_region, read
from .regions import RegionStage, Verified
from .result import LENGTH, PARTIAL, REPETITION, SUCCESS, ParsedPage, StageStats
from .settings import ParseSettings
from .speaking import Said, combined, eos_ids, figures, speak

NO_DRAFT = PageDraft([])


class PageParser:
    """Parses pages with one model (hierarchical speculative decoding, section 3.1).

    At tolerance 1 the text of a page is what plain decoding of it gives, whatever was drafted.
    What a page teaches about drafts and costs is kept for the next one.

    Args:
        pair: the model, see `load_parser`; its draft is not used.
        settings: how.

    Raises:
        SoonerError: the model's processor has no chat template.
    """

    def __init__(self, pair: Pair, settings: ParseSettings | None = None) -> None:
        self.pair, self.target = pair, pair.target
        self.settings = settings or ParseSettings()
        asked = self.settings
        self.ask = ask_of(
            getattr(pair.target.model.config, "model_type", ""),
            pair.prompt,
            asked.prompt,
            asked.region_prompt,
            asked.form,
        )
        page_message(self.target.processor, self.ask.page)
        self.eos = eos_ids(self.target.model)
        self.experience = Experience()
        # Drafts of the first stage are a pipeline's, those of the second are the target's own.
        self.regions = RegionStage(self.target, asked, self.ask.region, Experience())

    def __call__(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        """Parse a page.

        Args:
            page: its picture.
            draft: what drafters say of it; nothing is decoded plainly.

        Raises:
            SoonerError: the page does not fit the model, or memory ran out.
        """
        draft = draft or NO_DRAFT
        notes = [_blamed(draft)] if draft.reason else []
        verified, pieces = Verified([]), list[Piece]()
        if self.settings.stages != "page" and draft.regions:
            pieces = pieces_of(draft, self.ask.region_form)
            verified = self._first_stage(page, pieces, notes)
        if self.settings.stages == "regions":
            if any(one is not None for one in verified.said):
                return self._assembled(page, draft, pieces, verified, notes)
            notes.append("no regions to parse; the page was parsed as a whole")
        return self._page(page, draft, pieces, verified, notes)

    def _first_stage(self, page: Page, pieces: list[Piece], notes: list[str]) -> Verified:
        try:
            return self.regions(page, pieces)
        except SoonerError as error:
            notes.append(f"stage 1 was left out: {error}")
            return Verified([None] * len(pieces))

    def _page(
        self,
        page: Page,
        draft: PageDraft,
        pieces: list[Piece],
        verified: Verified,
        notes: list[str],
    ) -> ParsedPage:
        """Stage 2: one pass over the page, with what there is as an unordered set of drafts."""
        began = time.perf_counter()
        inputs = picture_inputs(
            self.target.processor, [page.picture], self.ask.page, self.target.model
        )
        seen = seen_size(self.target.model, inputs)
        took = time.perf_counter() - began
        limit = room_for(self.target.model, inputs, self.settings.max_new_tokens)
        method = self._method(self._drafts(draft, pieces, verified, seen))
        prefill = build_prefill(CaptionSettings(prefill=self.settings.prefill), self.pair, inputs)
        (said,), stats = speak(
            self.target.model, inputs, method, limit, self.settings.repetition, set(self.eos),
            prefill,
        )  # fmt: skip
        mode = method.mode if prefill is None else APPROXIMATE
        if stats is not None:  # a short page may have been prefilled densely after all
            mode = stats.mode
        raw = self._text(said.tokens)
        text = raw if said.sound == len(said.tokens) else self._text(said.tokens[: said.sound])
        reading = read(text, self.ask.form, draft, page.size, seen)
        status, reason = _judged(said, reading, limit)
        runs = [*verified.runs, *([stats] if stats is not None else [])]
        return ParsedPage(
            source=page.source.name,
            number=page.number,
            status=status,
            reason=reason,
            markdown=reading.markdown,
            raw=raw,
            regions=described(reading, said, raw, self.target.tokenizer, page.size),
            size=page.size,
            truncated=said.truncated,
            repaired=reading.repaired,
            drafter=draft.drafter,
            notes=notes,
            mode=mode,
            stages={**self._first_figures(verified), "page": figures(stats, [said], mode)},
            seconds=_seconds(runs, verified, took),
        )

    def _method(self, drafts: list[list[int]]) -> Method:
        if not drafts:
            return Autoregressive()
        settings = self.settings
        return HSD(
            [drafts],
            window=settings.window,
            tolerance=settings.tolerance,
            nodes=settings.nodes,
            experience=self.experience,
        )

    def _drafts(
        self,
        draft: PageDraft,
        pieces: list[Piece],
        verified: Verified,
        seen: tuple[int, int] | None,
    ) -> list[list[int]]:
        """Token ids for stage 2: of stage 1 where it came to an end, else as they were drafted."""
        heard = {
            piece.place: text
            for piece, one in zip(pieces, verified.said, strict=False)
            if one is not None and one.truncated is None and (text := self._text(one.tokens))
        }
        whole = heard_pieces(
            pieces_of(draft, self.ask.form, seen), heard, self.ask.form, draft, seen
        )
        return page_drafts(self.target.tokenizer, whole, self.ask.form, self.eos) if whole else []

    def _assembled(
        self,
        page: Page,
        draft: PageDraft,
        pieces: list[Piece],
        verified: Verified,
        notes: list[str],
    ) -> ParsedPage:
        """Regions put one behind the other, as drafters order them; no pass over the page."""
        regions, shares, blocks = [], [], ""
        cut = 0
        for piece, one in zip(pieces, verified.said, strict=True):
            text = piece.texts[0] if one is None else self._text(one.tokens[: one.sound])
            cut += one is not None and one.truncated is not None
            if text:
                blocks += text + (piece.end or "\n")
                regions.append(replace(piece.region, drafts=[text]))
                shares.append(sum(one.drafted) / len(one.drafted) if one and one.drafted else None)
        figures_of = self._first_figures(verified)
        return ParsedPage(
            source=page.source.name,
            number=page.number,
            status=PARTIAL if cut else SUCCESS,
            reason=f"{cut} of {len(pieces)} regions did not come to an end" if cut else "",
            markdown=blocks,
            raw=blocks,
            regions=[
                parsed_region(region, order, page.size, share)
                for order, (region, share) in enumerate(zip(regions, shares, strict=True))
            ],
            size=page.size,
            truncated=LENGTH if cut else None,
            drafter=draft.drafter,
            notes=notes,
            mode=APPROXIMATE,
            stages=figures_of,
            seconds=_seconds(verified.runs, verified, 0.0),
        )

    def _first_figures(self, verified: Verified) -> dict[str, StageStats]:
        """Of stage 1, if it ran: batches put together, those that were stopped left out."""
        if not verified.runs:
            return {}
        return {"regions": combined(verified.runs)}

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self.target.tokenizer.decode(tokens, skip_special_tokens=True))


def _seconds(runs: Sequence[Stats], verified: Verified, processor: float) -> dict[str, float]:
    seconds = {
        "processor": processor + verified.seconds["processor"],
        "vision": sum(run.seconds["vision"] for run in runs),
        "prefill": sum(run.seconds["prefill"] for run in runs),
        "decode": sum(run.decode_seconds for run in runs),
    }
    return {**seconds, "regions": verified.seconds["regions"]}


def _judged(said: Said, reading: Reading, limit: int) -> tuple[str, str]:
    """Status and reason."""
    if said.truncated == REPETITION:
        return PARTIAL, f"stopped after {len(said.tokens)} tokens: the text repeats itself"
    if said.truncated == LENGTH:
        return PARTIAL, f"cut after {limit} tokens; raise --max-new-tokens"
    if reading.repaired:
        return PARTIAL, "the answer is no valid JSON; it was read as far as possible"
    return SUCCESS, ""


def _blamed(draft: PageDraft) -> str:
    """What a drafter's reason means for a page."""
    how = "" if draft.regions else "; decoded plainly"
    return f"drafter {draft.drafter or 'none'}: {draft.reason}{how}"
