"""Writes results: files of pages and documents, and pictures of pages with their regions."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from ...checks import check_choice
from ...documents import Document, Page, Region, page_html
from .output import OutputError, write_whole
from .plan import DocumentWork
from .result import DRAFT, FAILED, PARTIAL, SUCCESS, ParsedPage, ParsedRegion

FORMATS = ("md", "json", "html")

HEAD = (
    "<!doctype html>\n"
    # A model's output is displayed, never executed: no scripts.
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
        check_choice("format", name, FORMATS)
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

LONGEST = 1200

"""Pixels of the longer side."""

COLOURS = {
    "Title": "#c0392b", "Section-header": "#d35400", "Text": "#2471a3", "List-item": "#148f77",
    "Table": "#7d3c98", "Formula": "#b7950b", "Picture": "#707b7c",
}  # fmt: skip

OTHER = "#34495e"

Box = tuple[float, float, float, float]


def overlay(page: Page, parsed: ParsedPage) -> bytes:
    """A PNG of the page with the boxes of its regions, each with its place in reading order, from
    1, and what it is. Regions that share a box share its tag."""
    image = Image.fromarray(page.picture)
    image.thumbnail((LONGEST, LONGEST))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(max(image.height / 55, 9))
    across, down = image.width / page.width, image.height / page.height
    for (x0, y0, x1, y1), regions in by_box(parsed.regions).items():
        box = (x0 * across, y0 * down, x1 * across, y1 * down)
        colour = COLOURS.get(regions[0].label, OTHER)
        draw.rectangle(box, outline=colour, width=2)
        numbers = ", ".join(str(region.order + 1) for region in regions)
        _tag(draw, box, f"{numbers} {regions[0].label}", colour, font)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def by_box(regions: Sequence[ParsedRegion]) -> dict[Box, list[ParsedRegion]]:
    """Regions that have a box, those of the same one together."""
    found: dict[Box, list[ParsedRegion]] = {}
    for region in regions:
        if region.bbox is not None:
            found.setdefault(region.bbox, []).append(region)
    return found


def _tag(draw: ImageDraw.ImageDraw, box: Box, text: str, colour: str, font: object) -> None:
    """A name above a box's upper right corner, where it hides least; inside, without room."""
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)  # type: ignore[arg-type]
    width, height = right - left + 6, bottom - top + 4
    x = max(box[2] - width, 0.0)
    y = box[1] - height if box[1] >= height else box[1]
    draw.rectangle((x, y, x + width, y + height), fill=colour)
    draw.text((x + 3 - left, y + 2 - top), text, fill="white", font=font)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Delivery:
    """Writes the files of a run.

    Attributes:
        folder: of the results.
        formats: of `files.FORMATS`.
        overlay: write a picture of each page with its regions.
    """

    folder: Path
    formats: tuple[str, ...] = FORMATS
    overlay: bool = True

    def __post_init__(self) -> None:
        check_formats(",".join(self.formats))

    def files(self, document: Document, number: int) -> list[Path]:
        """Files of a page, below the folder."""
        suffixes = [*self.formats, *(["png"] if self.overlay else [])]
        return [page_file(document.place, number, suffix) for suffix in suffixes]

    def check(self, document: Document) -> None:
        """Refuse, before any work, what could not be written afterwards.

        Raises:
            OutputError: a file lies where the folder of a document's pages would be.
        """
        place = self.folder / document.place
        if place.is_file():
            raise OutputError(
                f"the pages of '{document.path}' would go to '{place}', which is a file; choose "
                "another folder with -o"
            )

    def has(self, document: Document, number: int) -> bool:
        return all((self.folder / name).is_file() for name in self.files(document, number))

    def write_page(
        self, document: Document, page: Page, parsed: ParsedPage, form: str
    ) -> list[Path]:
        """Write a page's files; returns their names below the folder.

        Raises:
            OutputError: one can't be written.
        """
        names = self.files(document, parsed.number)
        for name in names:
            if name.suffix == ".png":
                data = overlay(page, parsed)
            else:
                data = page_text(parsed, name.suffix[1:], form).encode()
            write_whole(self.folder / name, [data])
        return names

    def write_document(self, work: DocumentWork, records: Sequence[dict[str, Any]]) -> None:
        """Write a document's own files out of those of its pages, earlier runs' included.

        Args:
            records: of its pages, in order.

        Raises:
            OutputError: one can't be written.
        """
        there = [one for one in records if one["status"] != FAILED]
        if not there:
            return
        told = document_told(work, records)
        for suffix in self.formats:
            files = [
                self.folder / page_file(work.document.place, one["page"], suffix) for one in there
            ]
            target = self.folder / document_file(work.document.place, suffix)
            write_whole(target, join(suffix, [file for file in files if file.is_file()], told))

    def has_document(self, document: Document) -> bool:
        return all(
            (self.folder / document_file(document.place, suffix)).is_file()
            for suffix in self.formats
        )


def document_told(work: DocumentWork, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a document's JSON says besides its pages."""
    failed = [one for one in records if one["status"] == FAILED]
    return {
        "source": work.document.place.as_posix(),
        "status": _whole(one["status"] for one in records),
        "input_hash": work.input_hash,
        "settings_hash": work.settings_hash,
        "failed": [{"page": one["page"], "reason": one["reason"]} for one in failed],
    }


def _whole(statuses: Iterable[str]) -> str:
    """A document's status: that of all its pages, a draft if some are; else partial."""
    found = set(statuses)
    if found == {SUCCESS}:
        return SUCCESS
    return DRAFT if found <= {SUCCESS, DRAFT} else PARTIAL


def record_of(work: DocumentWork, parsed: ParsedPage, files: Sequence[Path]) -> dict[str, Any]:
    """A page's line in the manifest."""
    last, counts = parsed.last, parsed.counts_for_speed
    return {
        "document": work.document.place.as_posix(),
        "page": parsed.number,
        "status": parsed.status,
        "reason": parsed.reason,
        "source": str(work.document.path),
        "input_hash": work.input_hash,
        "settings_hash": work.settings_hash,
        "files": [file.as_posix() for file in files],
        "mode": parsed.mode,
        "drafter": parsed.drafter,
        "regions": len(parsed.regions),
        "tokens": last.tokens,
        "steps": last.steps,
        "truncated": parsed.truncated,
        "repaired": parsed.repaired,
        # A page that never ended says nothing about speed.
        "mean_acceptance_length": last.mean_acceptance_length if counts else None,
        "aal": last.aal if counts else None,
        "tokens_per_second": last.tokens_per_second if counts else None,
        "seconds": {name: round(took, 4) for name, took in parsed.seconds.items()},
        "notes": parsed.notes,
        **({} if parsed.compared is None else {"compared": parsed.compared}),
    }
