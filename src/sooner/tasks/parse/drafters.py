"""Drafters by the names that the command line has for them; no torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...checks import check_choice, check_whole
from ...documents.drafters import OCR, PlainText, SavedJson, TextLayer
from ...documents.page import BLANK, Page, PageDrafter
from ...documents.regions import PageDraft
from ...errors import SoonerError
from ..identity import sha256
from ..settings import short_hash
from .guard import GuardedDrafter

AUTO, NONE = "auto", "none"
NAMES = (AUTO, "ocr", "text-layer", "saved:FILE", "text:FILE", NONE)

TIMEOUT = 120.0
"""Seconds that a drafter has for a page."""


class FirstOf:
    """The first drafter that has something to say: `FirstOf(TextLayer(), OCR())` reads scans, and
    takes a PDF's own text where it is good. A page with nothing on it is nobody else's either.

    Args:
        drafters: one or more, the best or cheapest first.
    """

    def __init__(self, *drafters: PageDrafter) -> None:
        self.drafters = drafters
        self.name = "|".join(drafter.name for drafter in drafters)

    def __call__(self, page: Page) -> PageDraft:
        seconds, reasons = 0.0, list[str]()
        draft = PageDraft([], drafter=self.name, size=page.size)
        for drafter in self.drafters:
            draft = drafter(page)
            seconds += draft.seconds
            reasons += [f"{draft.drafter}: {draft.reason}"] if draft.reason else []
            if draft.texts or draft.reason == BLANK:
                break
        reason = draft.reason if draft.texts else "; ".join(reasons)
        return replace(draft, seconds=seconds, reason=reason)

    def close(self) -> None:
        """End the processes of those that have any."""
        for drafter in self.drafters:
            getattr(drafter, "close", lambda: None)()


Guarded = GuardedDrafter | FirstOf

_FROM_FILES: dict[str, Callable[[str], PageDrafter]] = {"saved": SavedJson, "text": PlainText}


def make_drafter(
    spec: str, language: str | None = None, ocr_models: str | Path | None = None
) -> PageDrafter | None:
    """Returns the drafter that `spec` names.

    `auto` takes a PDF's own text layer where it is good, else OCR; `none` drafts nothing.

    Args:
        language: that OCR reads, by rapidocr's names.
        ocr_models: a folder of recognition models for languages that rapidocr's wheel lacks.

    Raises:
        SoonerError: an unknown name or language, a file that does not exist, OCR that is not
            installed, or a language without OCR.
    """
    if {language, ocr_models} != {None} and spec not in (AUTO, OCR.name):
        raise SoonerError(
            f"--language and --ocr-model-dir are for OCR, but drafter '{spec}' has none; use "
            "--drafter ocr or auto"
        )
    if ocr_models is not None and language is None:
        raise SoonerError("--ocr-model-dir needs --language, which says what to read by its models")
    kind, path = spec.partition(":")[::2]
    if kind in _FROM_FILES:
        if not path:
            raise SoonerError(f"drafter '{spec}' needs a file or a folder, as in {kind}:drafts")
        return _FROM_FILES[kind](path)
    check_choice("drafter", spec, NAMES)
    if spec == NONE:
        return None
    if spec == "text-layer":
        return TextLayer()
    if importlib.util.find_spec("rapidocr") is None:
        raise SoonerError(
            f"drafter '{spec}' needs rapidocr; install it with: pip install 'sooner[ocr]', or "
            "use --drafter text-layer or none"
        )
    ocr = OCR(language=language, models=ocr_models)
    return ocr if spec == OCR.name else FirstOf(TextLayer(), ocr)


def guard(
    drafter: PageDrafter | None, spec: str, timeout: float = TIMEOUT, workers: int = 1
) -> Guarded | None:
    """Returns a drafter whose errors and hangs do not stop a run; see `GuardedDrafter`.

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
        guards = (guard(item, item.name, timeout, workers) for item in drafter.drafters)
        return FirstOf(*(item for item in guards if item is not None))
    return GuardedDrafter(drafter, timeout, workers if spec in (AUTO, OCR.name) else 0)


def processes_of(drafter: PageDrafter | None) -> int:
    """Returns how many processes a drafter has besides this one."""
    if isinstance(drafter, FirstOf):
        return sum(map(processes_of, drafter.drafters))
    return len(drafter.processes) if isinstance(drafter, GuardedDrafter) else 0


def drafter_hash(
    spec: str, language: str | None = None, ocr_models: str | Path | None = None
) -> str:
    """Returns hash of a drafter's name, its language, and of the content of its files."""
    path, name = Path(spec.partition(":")[2]), spec
    if path.is_file():
        name = f"{spec} {sha256(path)}"
    elif ":" in spec:
        name = f"{spec} {_hash_below(path)}"
    if ocr_models is not None:
        name = f"models {_hash_below(Path(ocr_models).expanduser())},{name}"
    return name if language is None else f"language {language},{name}"


def _hash_below(folder: Path) -> str:
    """Returns hash of the files below a folder: their names, sizes and times."""
    files = [(file, file.stat()) for file in sorted(folder.rglob("*")) if file.is_file()]
    names = (file.relative_to(folder).as_posix() for file, _ in files)
    stats = ((stat.st_size, stat.st_mtime_ns) for _, stat in files)
    return short_hash(list(zip(names, stats, strict=True)))
