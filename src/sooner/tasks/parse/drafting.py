"""Drafters by name, and what becomes of a page's draft: waited for, verified region by region."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...checks import check_choice, check_whole
from ...documents import Page, PageDraft
from ...documents.drafters import OCR, AllOf, Drafter, FirstOf, PlainText, SavedJson, TextLayer
from ...documents.drafters.guard import GuardedProcess, GuardedProcesses, GuardedThread, guarded
from ...errors import SoonerError
from ..identity import fingerprint, sha256
from .asking import Cells
from .budget import Budget
from .contexts import Ids, Piece, heard_pieces, page_drafts, pieces_of
from .forms import Ask
from .regions import RegionStage, Verified
from .result import Late

AUTO, NONE = "auto", "none"

NAMES = (AUTO, "ocr", "text-layer", "saved:FILE", "text:FILE", NONE)

TIMEOUT = 120.0

"""Seconds that a drafter has for a page."""

Guarded = GuardedThread | GuardedProcess | GuardedProcesses | FirstOf

_FROM_FILES: dict[str, Callable[[str], Drafter]] = {"saved": SavedJson, "text": PlainText}


def make_drafter(spec: str) -> Drafter | None:
    """The drafter that `spec` names; several of them, put together, where it has commas.

    `auto` takes a PDF's own text layer where it is good, else OCR; `none` drafts nothing.

    Raises:
        SoonerError: an unknown name, a file that does not exist, or OCR that is not installed.
    """
    names = [name.strip() for name in spec.split(",")]
    if names == [NONE]:
        return None
    if NONE in names:
        raise SoonerError(f"drafter is '{spec}', but 'none' drafts nothing; leave it or the rest")
    drafters = [_one(name) for name in names]
    return drafters[0] if len(drafters) == 1 else AllOf(*drafters)


def _one(name: str) -> Drafter:
    kind, path = name.partition(":")[::2]
    if kind in _FROM_FILES:
        if not path:
            raise SoonerError(f"drafter '{name}' needs a file or a folder, as in {kind}:drafts")
        return _FROM_FILES[kind](path)
    check_choice("drafter", name, NAMES)
    if name == "text-layer":
        return TextLayer()
    _check_ocr(name)
    return OCR() if name == "ocr" else FirstOf(TextLayer(), OCR())


def _check_ocr(name: str) -> None:
    if importlib.util.find_spec("rapidocr") is None:
        raise SoonerError(
            f"drafter '{name}' needs rapidocr; install it with: pip install 'sooner[docs]', or use "
            "--drafter text-layer or none"
        )


def guard(
    drafter: Drafter | None, spec: str, timeout: float = TIMEOUT, workers: int = 1
) -> Guarded | None:
    """A drafter that can neither break nor hold up a run; see `guarded`.

    OCR is the one that may hang or die, and takes the CPU: it gets processes of its own. Where it
    is one of several to be tried in turn, they start once a page needs it.

    Args:
        workers: how many of them; 0 leaves it in this one, where a page waits for its own draft.

    Raises:
        SoonerError: a time that is not above 0, or fewer workers than none.
    """
    check_whole("workers", workers, 0)
    if drafter is None:
        return None
    if isinstance(drafter, FirstOf):
        return FirstOf(*(_guard(one, one.name, timeout, workers) for one in drafter.drafters))
    return _guard(drafter, spec, timeout, workers)


def _guard(drafter: Drafter, spec: str, timeout: float, workers: int) -> Guarded:
    if workers and any(name.strip() in (AUTO, OCR.name) for name in spec.split(",")):
        return guarded(drafter, timeout, process=True, count=workers)
    return guarded(drafter, timeout)


def processes_of(drafter: Drafter | None) -> int:
    """How many processes a drafter has besides this one."""
    if isinstance(drafter, FirstOf):
        return sum(map(processes_of, drafter.drafters))
    if isinstance(drafter, GuardedProcesses):
        return len(drafter.processes)
    return int(isinstance(drafter, GuardedProcess))


def drafter_hash(spec: str) -> str:
    """What tells one state of a drafter from another: its name, and the content of its files."""
    parts = []
    for name in spec.split(","):
        path = Path(name.partition(":")[2])
        if path.is_file():
            parts.append(f"{name} {sha256(path)}")
        else:
            parts.append(f"{name} {fingerprint(str(path))}" if ":" in name else name.strip())
    return ",".join(parts)


NO_DRAFT = PageDraft([])


class Drafting:
    """One page's draft on its way into the decoder; each step is taken once, when it is due.

    Args:
        page: its picture.
        draft: of it; or what waits for it.
        ask: what the target is asked.
        regions: stage 1; `None` leaves it out.
        tokenizer: the target's.
        eos: ids that end a text.

    Attributes:
        verified: what stage 1 made of `pieces`.
        notes: what went wrong.
        waited: seconds until the draft was there.
        is_empty: nothing was drafted that the target could confirm.
    """

    def __init__(
        self,
        page: Page,
        draft: PageDraft | Late | None,
        ask: Ask,
        regions: RegionStage | None,
        tokenizer: Any,
        eos: Ids,
    ) -> None:
        self.page, self.ask, self.regions = page, ask, regions
        self.tokenizer, self.eos = tokenizer, eos
        self.verified, self.pieces = Verified([]), list[Piece]()
        self.notes: list[str] = []
        self.waited = 0.0
        self.is_empty = True
        self._given = draft
        self._draft: PageDraft | None = None

    @property
    def is_none(self) -> bool:
        """Nobody drafts."""
        return self._given is None

    @property
    def draft(self) -> PageDraft:
        """What was drafted; the first call waits for it."""
        if self._draft is None:
            given, began = self._given, time.perf_counter()
            self._draft = (given() if callable(given) else given) or NO_DRAFT
            self.waited = time.perf_counter() - began
            if self._draft.reason:
                self.notes.append(_blamed(self._draft))
        return self._draft

    @property
    def letters(self) -> int:
        """How many were drafted, the best draft of each region; the first call waits for them."""
        return sum(len(region.drafts[0]) for region in self.draft.regions if region.drafts)

    def first_stage(self, cells: Cells | None, budget: Budget | None = None) -> None:
        """Let the target read regions on their own.

        Args:
            cells: its raster over the page.
            budget: what that may cost; `None` for all that it takes.
        """
        is_worth_it = budget is None or budget.is_enough
        if self.regions is None or not is_worth_it or not self.draft.regions:
            return
        self.pieces = pieces_of(self.draft, self.ask.region_form)
        self.verified = self.regions(self.page, self.pieces, cells, budget)
        if self.verified.reason:
            self.notes.append(f"stage 1 was left out: {self.verified.reason}")

    def groups(
        self, seen: tuple[int, int] | None, cells: Cells | None, budget: Budget | None = None
    ) -> list[list[Ids]]:
        """Token ids for stage 2, alternatives of a region together: what stage 1 read, where it
        read anything, and what was drafted.

        Args:
            seen: width and height in which the target says boxes.
            cells, budget: as for `first_stage`.
        """
        self.first_stage(cells, budget)
        form, heard = self.ask.form, self.verified.heard
        whole = heard_pieces(pieces_of(self.draft, form, seen), heard, form, self.draft, seen)
        found = page_drafts(self.tokenizer, whole, form, self.eos) if whole else []
        self.is_empty = not found
        return found

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))


def _blamed(draft: PageDraft) -> str:
    """What a drafter's reason means for a page."""
    how = "" if draft.regions else "; decoded plainly"
    return f"drafter {draft.drafter or 'none'}: {draft.reason}{how}"
