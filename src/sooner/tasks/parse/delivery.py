"""Where results go: a page's files and its line in the manifest, a document's own files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...documents import Document, Page
from .files import FORMATS, check_formats, document_file, join, page_file, page_text
from .output import OutputError, write_whole
from .overlay import overlay
from .plan import Work
from .result import DRAFT, FAILED, PARTIAL, SUCCESS, ParsedPage


@dataclass(frozen=True)
class Delivery:
    """What is written where.

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

    def write_document(self, work: Work, records: Sequence[dict[str, Any]]) -> None:
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


def document_told(work: Work, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
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


def record_of(work: Work, parsed: ParsedPage, files: Sequence[Path]) -> dict[str, Any]:
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
