"""Which pages of which documents are still to be done, by the folder's manifest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...documents import BrokenPage, Document, Page, PageRange, Resolution, read_pages
from ...documents.inputs import PICTURES
from ...documents.pages import count_frames
from ...documents.pdf import count_pdf_pages
from ...errors import SoonerError
from ...io import JsonLines, to_line
from ..identity import sha256
from .output import writing
from .result import DRAFT, FAILED

NAME = "manifest.jsonl"


class Manifest:
    """`manifest.jsonl` of an output folder.

    It is read and written as `JsonLines`. A page that was done again has two lines until `tidy`;
    the later one counts. Threads of one process may share it; another process must not write
    meanwhile (`FolderLock`).

    Args:
        folder: of the results.

    Raises:
        OutputError: the file can't be written.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / NAME
        self._records: dict[str, dict[int, dict[str, Any]]] = {}  # document -> page -> record
        self._changing = threading.RLock()
        touch(folder)
        with writing(self.path):
            self._file = JsonLines(self.path)
        for record in filter(_is_page, self._file.found):
            self._keep(record)

    def of(self, document: Path) -> list[dict[str, Any]]:
        """Records of a document, by page."""
        with self._changing:
            pages = self._records.get(document.as_posix(), {})
            return [pages[number] for number in sorted(pages)]

    def current(
        self, document: Path, input_hash: str, settings_hash: str, or_verified: bool = False
    ) -> list[dict[str, Any]]:
        """Those of them that are of this content and these settings.

        Args:
            or_verified: those that a model verified, too, whatever its settings were.
        """
        return [
            record
            for record in self.of(document)
            if record["input_hash"] == input_hash
            and (record["settings_hash"] == settings_hash or (or_verified and is_verified(record)))
        ]

    def add(self, record: dict[str, Any]) -> None:
        """Put a page's record on disk.

        Raises:
            OutputError: it can't be; nothing is left of it.
        """
        with writing(self.path):
            self._file.add(record)
        self._keep(record)

    def _keep(self, record: dict[str, Any]) -> None:
        with self._changing:
            self._records.setdefault(record["document"], {})[record["page"]] = record

    def forget_stale(self, document: Path, input_hash: str) -> None:
        """Leave out what a document was before it changed, and what was wrong with it as a whole,
        which comes to light anew; `tidy` takes it away."""
        with self._changing:
            for record in self.of(document):
                if record["input_hash"] != input_hash or record["page"] == 0:
                    del self._records[record["document"]][record["page"]]

    def tidy(self) -> None:
        """Rewrite the file with one line a page, in order, if it has others."""
        pages = [one for name in sorted(self._records) for one in self.of(Path(name))]
        if self._file.count != len(pages) or self._file.is_torn:
            with writing(self.path):
                self._file.rewrite(map(to_line, pages))


def touch(folder: Path) -> None:
    """Make sure that there is a manifest in a folder, and that it can be written.

    Raises:
        OutputError: it can't.
    """
    path = folder / NAME
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        with open(path, "ab"):
            pass


def is_verified(record: dict[str, Any]) -> bool:
    """Whether a page was verified by a model."""
    return record["status"] not in (DRAFT, FAILED)


def _is_page(record: dict[str, Any]) -> bool:
    fits = isinstance(record.get("document"), str) and isinstance(record.get("page"), int)
    return fits and {"input_hash", "settings_hash", "status"} <= set(record)


@dataclass
class DocumentWork:
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

    def read(self, work: DocumentWork) -> Iterator[Page | BrokenPage]:
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
) -> DocumentWork:
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
        return DocumentWork(document, hashed, settings_hash, wanted, max(todo, 1))
    left = [(number, number) for number in numbers if number not in done]
    gaps = [part for part in _parts(wanted.missing(count)) if part not in left]
    if not left and is_sound:
        return DocumentWork(document, hashed, settings_hash, PageRange(()), 0, len(done))
    pages = PageRange((*left, *gaps))
    return DocumentWork(
        document, hashed, settings_hash, pages, len(left) + (not is_sound), len(done)
    )


def _parts(missing: str) -> tuple[tuple[int, int | None], ...]:
    return PageRange.parse(missing).parts if missing else ()


def _hash(path: Path) -> str:
    try:
        return sha256(path)
    except SoonerError:
        return ""
