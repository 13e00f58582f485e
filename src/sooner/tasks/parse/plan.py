"""Which pages of a document are still to be done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...documents import BrokenPage, Document, Page, PageRange, Resolution, read_pages
from ...documents.inputs import PICTURES
from ...documents.pdf import count_pdf_pages
from ...documents.pictures import count_frames
from ...errors import SoonerError
from ..identity import sha256
from .manifest import Manifest, is_verified
from .result import FAILED


@dataclass
class Work:
    """A document and its pages.

    Attributes:
        document: what.
        input_hash: of the file's content; empty if it can't be read.
        pages: to be read now.
        todo: how many that are.
        done: how many were done before.
        settings_hash: of how.
    """

    document: Document
    input_hash: str
    settings_hash: str
    pages: PageRange
    todo: int
    done: int = 0


@dataclass(frozen=True)
class Intake:
    """Which pages of documents are read, and how; see `read_pages`."""

    pages: PageRange = field(default_factory=PageRange)
    resolution: Resolution = field(default_factory=Resolution)
    password: str | None = None

    def read(self, work: Work) -> Iterator[Page | BrokenPage]:
        return read_pages(work.document.path, work.pages, self.resolution, self.password)

    def count(self, path: Path) -> int:
        """Pages of a document; 0 if it can't be opened."""
        if path.suffix.lower() in PICTURES:
            return count_frames(path)
        return count_pdf_pages(path, self.password)


def plan(
    document: Document,
    intake: Intake,
    manifest: Manifest,
    settings_hash: str,
    is_there: Callable[[Document, int], bool],
    fresh: bool = False,
    drafts_only: bool = False,
) -> Work:
    """What is to be done of a document, which is opened and hashed for that.

    A page is done if the manifest has it with the same content and settings, not as a failure, and
    its files are there.

    Args:
        is_there: whether the files of a page of a document exist.
        fresh: do everything again.
        drafts_only: no model verifies the pages, so those that one verified are left alone.
    """
    wanted = intake.pages
    count = intake.count(document.path)
    numbers = wanted.select(count)
    hashed = _hash(document.path)
    records = manifest.current(document.place, hashed, settings_hash, drafts_only)
    if fresh:
        records = [record for record in records if drafts_only and is_verified(record)]
    kept = {
        record["page"]
        for record in records
        if record["status"] != FAILED and is_there(document, record["page"])
    }
    done = kept & set(numbers)
    # What is wrong with the document as a whole comes to light only where it is read.
    is_sound = not any(record["page"] == 0 for record in records) and not wanted.missing(count)
    if not done:
        todo = len(numbers) + bool(wanted.missing(count))
        return Work(document, hashed, settings_hash, wanted, max(todo, 1))
    left = [(number, number) for number in numbers if number not in done]
    gaps = [part for part in _parts(wanted.missing(count)) if part not in left]
    if not left and is_sound:
        return Work(document, hashed, settings_hash, PageRange(()), 0, len(done))
    pages = PageRange((*left, *gaps))
    return Work(document, hashed, settings_hash, pages, len(left) + (not is_sound), len(done))


def _parts(missing: str) -> tuple[tuple[int, int | None], ...]:
    return PageRange.parse(missing).parts if missing else ()


def _hash(path: Path) -> str:
    try:
        return sha256(path)
    except SoonerError:
        return ""
