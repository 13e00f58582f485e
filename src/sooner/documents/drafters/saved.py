"""Results that other programs saved as JSON, as drafts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ...checks import check_choice
from ...errors import SoonerError
from ..page import Page
from ..regions import PageDraft, Region, numbered
from . import docling, dots, mineru, paddle
from .base import to_page
from .plain import SavedFiles


class Format(NamedTuple):
    """A form that saved results have: how to know it, and how to read a page's regions out of it.

    `read` gives `None` if the file is not about that page.
    """

    is_mine: Callable[[Any], bool]
    read: Callable[[Any, Page], list[Region] | None]


def _is_draft(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("regions"), list)


def _draft_regions(data: Any, page: Page) -> list[Region]:
    draft = PageDraft.from_json(data)
    return to_page(draft.regions, page, draft.size)


FORMATS = {
    "paddle": Format(paddle.is_mine, paddle.read),
    "mineru-content-list": Format(mineru.is_content_list, mineru.read_content_list),
    "mineru-middle": Format(mineru.is_middle, mineru.read_middle),
    "docling": Format(docling.is_mine, docling.read),
    "dots": Format(dots.is_mine, dots.read),
    "sooner": Format(_is_draft, _draft_regions),
}


class SavedJson:
    """Reads regions from files of PP-StructureV3, MinerU, docling, dots.ocr, or
    `PageDraft.to_json`.

    Args:
        path: a file, or a folder in which files are called as these programs call them for
            `paper.pdf`: `paper_0_res.json`, `paper_content_list.json`, `paper_middle.json`,
            `paper.json`, `paper_page_0.json`.
        form: one of `FORMATS`, if it shall not be told from the content.

    Raises:
        SoonerError: no such path or form; when called, a file that is no JSON or of no known form.
    """

    def __init__(self, path: str | Path, form: str | None = None) -> None:
        if form is not None:
            check_choice("format of saved results", form, FORMATS)
        self.files = SavedFiles(Path(path), (".json",))
        self.form = form
        self.name = f"saved-{form}" if form else "saved"

    def __call__(self, page: Page) -> PageDraft:
        began = time.perf_counter()
        for path, is_of_page in self.files.of(page):
            data = _load(path)
            form = FORMATS[self.form or _form_of(data, path)]
            try:
                regions = form.read(data, page)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise SoonerError(f"'{path}' is not as its format should be ({reason})") from None
            if regions is not None and (regions or is_of_page):
                seconds = time.perf_counter() - began
                return PageDraft(numbered(regions), seconds, self.name, page.size)
        reason = f"nothing saved of page {page.number} of '{page.source.name}'"
        seconds = time.perf_counter() - began
        return PageDraft([], seconds, self.name, page.size, f"{reason} in '{self.files.root}'")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SoonerError(f"'{path}' can't be read: {error.strerror}") from None
    except ValueError as error:
        raise SoonerError(f"'{path}' is no JSON: {error}") from None


def _form_of(data: Any, path: Path) -> str:
    for name, form in FORMATS.items():
        if form.is_mine(data):
            return name
    raise SoonerError(f"'{path}' has none of the known formats: {', '.join(FORMATS)}")
