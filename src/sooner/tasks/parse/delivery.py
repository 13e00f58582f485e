"""An output folder: an object a page, an entry a document, their files, and the manifest.

A page's object stands under its document's content and the settings, so two writers of one name
write the same page, and whoever is last changes nothing but times. Everything else (files of pages
and documents, entries, `manifest.jsonl`) is derived from these objects, by anybody, as often as
wanted. As long as a document's entry is there, its files are what the entry says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...documents import Document, Page
from ...io import read_line, to_line
from ...storage import MissingObjectError, ObjectError, Store, is_url, open_store
from ...storage.store import Data, check_name, is_unicode
from .formats import FORMATS, PAGED, check_formats, render_document, render_page
from .formats.figures import crops, named
from .result import DRAFT, FAILED, PARTIAL, SUCCESS, ParsedPage

PAGES, DOCUMENTS = ".sooner/pages", ".sooner/documents"
NAME = "manifest.jsonl"

PARSED, ASIDE, BROKEN = ENDS = (".json", ".aside.json", ".failed.json")
"""How names of pages' objects end: of those that were parsed, that are not tried again, and that
failed. A page may have several; the first of them counts."""

END = ".json"
LONGEST = 255
"""Bytes of the longest name of a file or folder on common file systems."""

AT_ONCE = 16
"""Objects that are read or written at once where each takes a network's time."""

Line = dict[str, Any]
"""What the manifest says of a page; see `Delivery.line`."""


@dataclass(frozen=True)
class PageTask:
    """A page to be parsed: all that another process needs to know of it; no pixels.

    Attributes:
        path: file or URL of its document.
        place: of the document in the results, with `/`.
        input_hash: of the document's content; empty for a file that can't be read.
        settings_hash: of how.
        number: from 1; 0 for the document as a whole.
    """

    path: str
    place: str
    input_hash: str
    settings_hash: str
    number: int

    @property
    def key(self) -> str:
        """Names the page in a store: the same for every place of this content."""
        return f"{self.input_hash}/{self.settings_hash}/{self.number:06d}"


def document_at(source: str, place: Path) -> Document:
    """Returns the document at a path or a URL."""
    return Document(Path(source), place, source if is_url(source) else None)


@dataclass(frozen=True)
class DocumentEntry:
    """A document whose files are all there.

    Attributes:
        place: where they are.
        input_hash: of the content that they are of.
        of: pages that it has; 0 for one that can't be read or written.
        choices: what its files are, see `Delivery.choices`.
        lines: of its pages, in order.
    """

    place: str
    input_hash: str
    of: int
    choices: dict[str, Any]
    lines: list[Line]


def page_file(place: Path, number: int, suffix: str) -> Path:
    """Returns where a page's file is below the output folder: in one called as its document."""
    return place / f"page-{number:04d}.{suffix}"


def document_file(place: Path, suffix: str) -> Path:
    """Returns where a document's file is: beside the folder of its pages."""
    return place.with_name(f"{place.name}.{suffix}")


@dataclass(frozen=True)
class Delivery:
    """Keeps what becomes of pages, and names and writes the files of a run.

    Attributes:
        folder: of the results, or a URL. What fails there raises its `StorageError`.
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
        """What the files of a document depend on besides its pages."""
        figures, formats = sorted(self.figures), sorted(self.formats)
        return {"formats": formats, "figures": figures, "furniture": self.furniture}

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

    def has(self, entry: DocumentEntry) -> bool:
        """Returns whether a document's files were written by these choices, and are all there."""
        pages = {name for line in entry.lines for name in line["files"]}
        names = self.document_files(Path(entry.place)).values() if pages else ()
        there = {info.name for info in self.store.names(f"{entry.place}/")}
        is_same = entry.choices == self.choices
        return is_same and pages <= there and all(map(self.store.exists, names))

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
            "input_hash": task.input_hash,
            "settings_hash": task.settings_hash,
            "files": self.files_of(Path(task.place), parsed) if has_files else [],
            "regions": len(parsed.regions),
            "seconds": {name: round(took, 4) for name, took in parsed.seconds.items()},
            **({} if parsed.compared is None else {"compared": parsed.compared}),
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

    def save(self, task: PageTask, page: ParsedPage, is_fresh: bool = False) -> None:
        """Keep what became of a page; a failure replaces what was parsed only if it `is_fresh`."""
        end = PARSED if page.status != FAILED else ASIDE if page.set_aside else BROKEN
        data = {
            "input_hash": task.input_hash,
            "settings_hash": task.settings_hash,
            "page": replace(page, source="").to_json(),  # a document may lie at many places
        }
        name = f"{PAGES}/{task.key}{end}"
        self.store.write(name, json.dumps(data, indent=1).encode() + b"\n")
        for other in ENDS if is_fresh else ():
            if other != end:
                self.store.remove(f"{PAGES}/{task.key}{other}")

    def read(self, task: PageTask) -> ParsedPage | None:
        """Returns what became of a page; `None` if nothing did.

        Raises:
            ObjectError: the store holds something else under its name.
        """
        for end in ENDS:
            name = f"{PAGES}/{task.key}{end}"
            try:
                page = json.loads(self.store.read(name))["page"]
                return replace(
                    ParsedPage.from_json(page), source=task.place, set_aside=end == ASIDE
                )
            except MissingObjectError:
                continue
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise ObjectError(
                    f"object '{self.store.url(name)}' is no record of a page; remove it, and the "
                    "page is parsed again"
                ) from error
        return None

    def is_done(self, task: PageTask) -> bool:
        """Returns whether a page was parsed by now."""
        return self.store.exists(f"{PAGES}/{task.key}{PARSED}")

    def ends(self, whole: PageTask) -> dict[int, str]:
        """Returns how the names of the objects end that count, by number of the page.

        Args:
            whole: any page of the document.
        """
        done: dict[int, str] = {}
        folder = f"{PAGES}/{whole.key.rpartition('/')[0]}/"
        for info in self.store.names(folder):
            digits, dot, end = info.name.removeprefix(folder).partition(".")
            if digits.isdigit() and dot + end in ENDS:
                number = int(digits)
                done[number] = min(dot + end, done.get(number, BROKEN), key=ENDS.index)
        return done

    def entry(self, place: str) -> DocumentEntry | None:
        """Returns what is known of a document's files; `None` if they may be anything."""
        with suppress(MissingObjectError, TypeError):  # not there, or of a later version
            record = read_line(self.store.read(_entry_name(place)))
            return None if record is None else DocumentEntry(**record)
        return None

    def lines(self, place: str) -> list[Line]:
        """Returns the manifest's lines of the pages of a document whose files are there."""
        entry = self.entry(place)
        return [] if entry is None else entry.lines

    def write_entry(self, entry: DocumentEntry) -> None:
        self.store.write(_entry_name(entry.place), to_line(asdict(entry)))

    def forget_entry(self, place: str) -> None:
        """A document's files are about to change."""
        self.store.remove(_entry_name(place))

    def rebuild_manifest(self) -> None:
        """Put the manifest together from the entries, a line a page, by document and page."""
        self.store.write(NAME, self._all_lines())

    def _all_lines(self) -> Iterator[bytes]:
        names = self.store.names(f"{DOCUMENTS}/")
        keys = sorted(info.name.removeprefix(f"{DOCUMENTS}/").removesuffix(END) for info in names)
        with ThreadPoolExecutor(AT_ONCE) as crew:  # each may wait for a network
            for start in range(0, len(keys), 4 * AT_ONCE):
                for lines in crew.map(self.lines, keys[start : start + 4 * AT_ONCE]):
                    yield from map(to_line, lines)


def _entry_name(place: str) -> str:
    """Returns an entry's name: its document's place, or a hash of one that can't be a file's."""
    longest = LONGEST - len(END)
    if is_unicode(place) and all(len(part.encode()) <= longest for part in place.split("/")):
        return f"{DOCUMENTS}/{place}{END}"
    digest = hashlib.sha256(place.encode(errors="surrogatepass")).hexdigest()[:32]
    return f"{DOCUMENTS}/unnamed-{digest}{END}"


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
        "source": task.place, "status": SUCCESS if statuses == {SUCCESS} else status,
        "input_hash": task.input_hash, "settings_hash": task.settings_hash,
        "failed": [{"page": entry["page"], "reason": entry["reason"]} for entry in failed],
    }  # fmt: skip
