"""Writes results: files of pages and documents, and pictures of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...documents import Document, Page
from ...storage import ObjectError, Store, open_store
from ...storage.store import Data, check_name
from .formats import FORMATS, PAGED, check_formats, render_document, render_page
from .formats.figures import crops, named
from .records import AT_ONCE, Line, PageTask, public_hash
from .result import DRAFT, FAILED, PARTIAL, SUCCESS, ParsedPage


def page_file(place: Path, number: int, suffix: str) -> Path:
    """Returns where a page's file is below the output folder: in one called as its document."""
    return place / f"page-{number:04d}.{suffix}"


def document_file(place: Path, suffix: str) -> Path:
    """Returns where a document's file is: beside the folder of its pages."""
    return place.with_name(f"{place.name}.{suffix}")


@dataclass(frozen=True)
class Delivery:
    """Names and writes the files of a run.

    Attributes:
        folder: of the results; a folder or a URL. What it can't hold raises a `StorageError`.
        formats: of `formats.FORMATS`.
        figures: labels of regions that are cut out as pictures.
        furniture: keep page headers and footers in the texts of documents.
    """

    folder: Path | str
    formats: tuple[str, ...] = PAGED
    figures: tuple[str, ...] = ()
    furniture: bool = True

    def __post_init__(self) -> None:
        check_formats(",".join(self.formats))

    @cached_property
    def store(self) -> Store:
        return open_store(self.folder)

    @property
    def choices(self) -> dict[str, Any]:
        """What the content of files depends on besides pages, where it is not as by default."""
        figures = {"figures": sorted(self.figures)} if self.figures else {}
        return figures if self.furniture else {**figures, "furniture": False}

    def files(self, place: Path, number: int) -> dict[str, str]:
        """Returns files that every page has, below the folder, by format."""
        kinds = [kind for kind in self.formats if kind in PAGED]
        return {kind: page_file(place, number, kind).as_posix() for kind in kinds}

    def files_of(self, place: Path, parsed: ParsedPage) -> list[str]:
        """Returns files of a page, those of its figures included."""
        pictures = [region.picture for region in named(parsed, self.figures).regions]
        figures = [(place / picture).as_posix() for picture in pictures if picture]
        return [*self.files(place, parsed.number).values(), *figures]

    def document_files(self, place: Path) -> dict[str, str]:
        """Returns files of a document below the folder, by format."""
        suffixes = {kind: FORMATS[kind].suffix for kind in self.formats}
        return {kind: document_file(place, end).as_posix() for kind, end in suffixes.items()}

    def check(self, document: Document) -> None:
        """Refuse, before any work, what could not be written afterwards.

        Raises:
            ObjectError: a file lies where the folder of a document's pages would be, or the names
                of its files can't be those of files.
        """
        name = document.place.as_posix()
        if self.store.local_path() is None:
            check_name(name)
            return
        if self.store.exists(name):
            raise ObjectError(
                f"the pages of '{document.source}' would go to '{self.store.url(name)}', which is "
                "a file; choose another folder with -o"
            )
        for file in self.document_files(document.place).values():
            self.store.exists(file)

    def is_in_place_of(self, document: Document) -> bool:
        """Returns whether a document itself lies where the folder of its pages would be."""
        place = self.store.local_path(document.place.as_posix())
        return place is not None and place.is_file() and place.samefile(document.path)

    def has(self, place: Path, lines: Mapping[int, Line]) -> bool:
        """Returns whether all files of a document are there that were written for these lines."""
        pages: list[str] = []
        for number, line in lines.items():
            if line["status"] != FAILED:
                expected = {*self.files(place, number).values()}
                if not expected <= {*line["files"]} or line.get("choices", {}) != self.choices:
                    return False
                pages += line["files"]
        names = [*self.document_files(place).values()] if pages else []
        there = {info.name for info in self.store.names(f"{place.as_posix()}/")}
        return {*pages} <= there and all(map(self.store.exists, names))

    def write_page(self, place: Path, page: Page | None, parsed: ParsedPage) -> None:
        """Write a page's files.

        Args:
            page: its picture; not looked at where no `figures` are wanted.
        """
        parsed = named(parsed, self.figures)
        kinds = self.files(place, parsed.number).items()
        files: dict[str, Data] = {name: render_page(kind, parsed) for kind, name in kinds}
        if page is not None:
            pictures = crops(page, parsed).items()
            files |= {(place / name).as_posix(): data for name, data in pictures}
        self._write(files)

    def line(self, task: PageTask, parsed: ParsedPage, is_written: bool = True) -> Line:
        """Returns the manifest's line of a page; one that failed has no files."""
        has_files = is_written and parsed.status != FAILED
        # A page that never ended, or that no model read, says nothing about speed.
        last = parsed.last if parsed.counts_for_speed and parsed.stages else None
        return {
            "document": task.place,
            "page": parsed.number,
            "status": parsed.status,
            "reason": parsed.reason,
            "mode": parsed.mode,
            "set_aside": parsed.set_aside,
            "drafter": parsed.drafter,
            "tokens": parsed.last.tokens,
            "steps": parsed.last.steps,
            "truncated": parsed.truncated,
            "repaired": parsed.repaired,
            "mean_acceptance_length": last and last.mean_acceptance_length,
            "aal": last and last.aal,
            "tokens_per_second": last and last.tokens_per_second,
            "notes": parsed.notes,
            "source": task.path,
            "input_hash": public_hash(task.input_hash),
            "settings_hash": task.settings_hash,
            "files": self.files_of(Path(task.place), parsed) if has_files else [],
            "regions": len(parsed.regions),
            "seconds": {name: round(took, 4) for name, took in parsed.seconds.items()},
            **({} if parsed.compared is None else {"compared": parsed.compared}),
            **({"choices": self.choices} if self.choices else {}),
        }

    def _write(self, files: Mapping[str, Data]) -> None:
        """Write files, at once where each of them waits for a network."""
        if self.store.local_path() is not None:
            for name, data in files.items():
                self.store.write(name, data)
        elif files:
            with ThreadPoolExecutor(min(len(files), AT_ONCE)) as crew:
                list(crew.map(self.store.write, files, files.values()))

    def write_document(
        self, place: Path, info: dict[str, Any], pages: Callable[[], Iterable[ParsedPage]]
    ) -> None:
        """Write a document's own files.

        Args:
            info: what is said of it as a whole, see `document_info`.
            pages: gives its pages in order, again for each file.
        """
        files: dict[str, Data] = {}
        for format_, name in self.document_files(place).items():
            parsed = (named(page, self.figures) for page in pages())
            files[name] = render_document(format_, parsed, info, self.furniture)
        self._write(files)


def document_info(task: PageTask, lines: Sequence[Line]) -> dict[str, Any]:
    """Returns what a document's JSON says besides its pages.

    Args:
        task: any of its pages.
        lines: of its pages, in order.
    """
    statuses = {entry["status"] for entry in lines}
    status = DRAFT if statuses <= {SUCCESS, DRAFT} else PARTIAL
    failed = [entry for entry in lines if entry["status"] == FAILED]
    return {
        "source": task.place,
        "status": SUCCESS if statuses == {SUCCESS} else status,
        "input_hash": public_hash(task.input_hash),
        "settings_hash": task.settings_hash,
        "failed": [{"page": entry["page"], "reason": entry["reason"]} for entry in failed],
    }
