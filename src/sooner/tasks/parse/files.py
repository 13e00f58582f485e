"""A page and a document as files: Markdown, JSON, HTML."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ...documents import Region, page_html
from ...errors import unknown
from .result import ParsedPage

FORMATS = ("md", "json", "html")
HEAD = (
    "<!doctype html>\n"
    # What a model says is shown and never run.
    '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<style>body{max-width:50em;margin:2em auto;font-family:serif}"
    "table{border-collapse:collapse}td,th{border:1px solid #999;padding:.2em .5em}</style>\n"
)


def check_formats(text: str) -> tuple[str, ...]:
    """Formats from a list with commas, each once.

    Raises:
        SoonerError: an unknown one.
    """
    names = list(dict.fromkeys(name.strip().lower() for name in text.split(",")))
    for name in names:
        if name not in FORMATS:
            raise unknown("format", name, FORMATS)
    return tuple(names)


def page_file(place: Path, number: int, suffix: str) -> Path:
    """Where a page's file is below the output folder: in a folder called as its document."""
    return place / f"page-{number:04d}.{suffix}"


def document_file(place: Path, suffix: str) -> Path:
    """Where a document's file is: beside the folder of its pages."""
    return place.with_name(f"{place.name}.{suffix}")


def page_text(page: ParsedPage, format_: str, form: str) -> str:
    """A page in a format of `FORMATS`."""
    if format_ == "md":
        return page.markdown
    if format_ == "json":
        return json.dumps(page.to_json(), ensure_ascii=False, indent=1) + "\n"
    return f"{HEAD}{_body(page, form)}"


def _body(page: ParsedPage, form: str) -> str:
    inner = page.raw if form == "html" else page_html(_as_regions(page))
    return f'<section id="page-{page.number}">\n{inner.rstrip()}\n</section>\n'


def _as_regions(page: ParsedPage) -> list[Region]:
    if not page.regions and page.markdown:
        return [Region(None, drafts=[page.markdown])]
    return [
        Region(region.bbox, region.label, region.order, [region.text], region.level)
        for region in page.regions
        if region.text
    ]


def join(format_: str, files: Sequence[Path], told: dict[str, Any]) -> Iterator[bytes]:
    """A document's file out of those of its pages, one of them in memory at a time.

    Args:
        told: what a JSON document says besides its pages.
    """
    yield from _JOIN[format_](files, told)


def _join_md(files: Sequence[Path], told: dict[str, Any]) -> Iterator[bytes]:
    is_first = True
    for file in files:
        text = file.read_bytes().strip()
        if text:
            yield (b"" if is_first else b"\n") + text + b"\n"
            is_first = False


def _join_html(files: Sequence[Path], told: dict[str, Any]) -> Iterator[bytes]:
    yield HEAD.encode() + f"<title>{html.escape(told['source'])}</title>\n".encode()
    for file in files:
        yield file.read_bytes().removeprefix(HEAD.encode())


def _join_json(files: Sequence[Path], told: dict[str, Any]) -> Iterator[bytes]:
    yield json.dumps(told, ensure_ascii=False)[:-1].encode() + b', "pages": ['
    for number, file in enumerate(files):
        yield (b",\n" if number else b"\n") + file.read_bytes().strip()
    yield b"\n]}\n"


_JOIN: dict[str, Callable[[Sequence[Path], dict[str, Any]], Iterator[bytes]]] = {
    "md": _join_md,
    "html": _join_html,
    "json": _join_json,
}
