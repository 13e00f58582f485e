"""Finding documents: files, folders and patterns, and page ranges such as `1-4,7`."""

from __future__ import annotations

import glob
import mimetypes
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from ..errors import SoonerError, did_you_mean
from ..storage.local import STATE_FOLDER
from ..storage.urls import fetch, find_files, local_folder

PART = re.compile(r"\s*(\d+)\s*(?:-\s*(\d*))?\s*")
"""A part of a page range: its first page and, behind a hyphen, its last one, or nothing."""


@dataclass(frozen=True)
class PageRange:
    """Pages of a document, in the order in which they were asked for, each once.

    Attributes:
        parts: first and last page of each part; the last is `None` for "to the end".
    """

    parts: tuple[tuple[int, int | None], ...] = ((1, None),)

    @classmethod
    def parse(cls, text: str) -> PageRange:
        """Read `1-4,7` or `10-`.

        Raises:
            SoonerError: another form, page 0, or a range that runs backwards.
        """
        parts = []
        for part in text.split(","):
            match = PART.fullmatch(part)
            first = int(match[1]) if match else 0
            last = int(match[2] or match[1]) if match and match[2] != "" else None
            if first < 1 or (last is not None and last < first):
                raise SoonerError(
                    f"page range '{text}' is not understood; the first page is 1, and a range "
                    "begins with its lower page: write it as 1-4,7 or 10-"
                )
            parts.append((first, last))
        return cls(tuple(parts))

    def select(self, pages: int) -> list[int]:
        """Returns numbers of those pages that a document of `pages` pages has."""
        parts = (range(first, min(last or pages, pages) + 1) for first, last in self.parts)
        return list(dict.fromkeys(chain.from_iterable(parts)))

    def missing(self, pages: int) -> str:
        """Parts of which such a document has no page, such as `7`; mostly empty. Of `1-4` it may
        lack some, as a range is what there is of it."""
        return ",".join(
            str(first) if last == first else f"{first}-{last or ''}"
            for first, last in self.parts
            if first > pages
        )


HEIF = (".heic", ".heif")

PICTURES = (
    ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".gif", ".jp2", ".avif", *HEIF,
)  # fmt: skip

SUFFIXES = (".pdf", *PICTURES)
"""File names that are documents."""


@dataclass(frozen=True)
class Document:
    """A document that is to be read.

    Attributes:
        path: where it is.
        place: where it is in the input tree, so that results can mirror that; of no other document
            of the same search.
        url: where it is instead, so that there is a file at `path` only inside `fetched`.
        problem: why it could not be fetched.
    """

    path: Path
    place: Path
    url: str | None = None
    problem: str = ""

    @property
    def source(self) -> str:
        """Where it is, for people and records."""
        return self.url or str(self.path)


def find_documents(inputs: Sequence[str | Path]) -> list[Document]:
    """Returns documents meant by `inputs`: files, folders searched to the bottom, patterns such as
    `*.pdf`; of this machine, or URLs such as `s3://bucket/folder/`, which are `fetched` when they
    are read.

    A folder's are in natural order (`page2` before `page10`), hidden ones left out, and folders of
    results below it, which hold a `.sooner`. A file named twice is kept once.

    Raises:
        SoonerError: nothing named so, nothing in it, or a file that is no document.
    """
    documents: dict[str, Document] = {}
    for name in inputs:
        path = local_folder(name)
        for document in _remote(str(name)) if path is None else _local(path):
            documents.setdefault(document.url or os.path.realpath(document.path), document)
    return _apart(list(documents.values()))


@contextmanager
def fetched(document: Document) -> Iterator[Document]:
    """Yields the document as a file of this machine while the block lasts.

    What lies here already is yielded as it is. A file that is fetched keeps its name, in a
    temporary folder that is gone behind the block. If it can't be fetched there is no file at
    `path`, and `problem` says why.
    """
    if document.url is None:
        yield document
        return
    with tempfile.TemporaryDirectory(prefix="sooner-", ignore_cleanup_errors=True) as folder:
        path, problem = Path(folder) / document.place.name, ""
        try:
            fetch(document.url, path)
        except SoonerError as error:
            problem = str(error)
        yield replace(document, path=path, problem=problem)


def _remote(url: str) -> list[Document]:
    """Returns documents that a URL means."""
    files = find_files(url, _is_document)
    documents = [Document(Path(file.place), Path(file.place), file.url) for file in files]
    return _visible([_known(document) for document in documents], url)


def _local(path: Path) -> list[Document]:
    """Returns documents of this machine that a path means.

    Folders behind links are not searched, nor those of earlier runs' results: pictures of pages
    there are no documents.
    """
    files: Iterable[Path]
    if path.is_file():
        return [_known(Document(path, Path(path.name)))]
    if path.is_dir():
        root, results = path, {state.parent for state in path.rglob(STATE_FOLDER)} - {path}
        files = (file for file in path.rglob("*") if results.isdisjoint(file.parents))
    elif glob.has_magic(str(path)):
        root = Path(os.path.dirname(re.split(r"[*?\[]", str(path))[0]) or ".")
        files = map(Path, glob.glob(str(path), recursive=True))
    else:
        siblings = [str(other) for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise SoonerError(f"'{path}' does not exist{did_you_mean(str(path), siblings)}")
    documents = (file for file in files if _is_document(file.name) and file.is_file())
    return _visible([Document(file, file.relative_to(root)) for file in documents], path)


def _is_document(name: str) -> bool:
    return Path(name).suffix.lower() in SUFFIXES


def _known(document: Document) -> Document:
    """Returns a document, if it is one by its name.

    Raises:
        SoonerError: it is not.
    """
    if _is_document(document.place.name):
        return document
    kind = mimetypes.guess_type(document.place.name)[0] or ""
    if kind.startswith("video/"):
        raise SoonerError(
            f"'{document.source}' is a video; caption it: sooner caption {document.source}"
        )
    hint = did_you_mean(document.place.suffix.lower(), SUFFIXES)
    raise SoonerError(
        f"'{document.source}' is no document by its name{hint}; known are {', '.join(SUFFIXES)}"
    )


def _visible(documents: list[Document], place: str | Path) -> list[Document]:
    """Returns documents of a folder or a pattern in natural order, hidden ones left out."""
    visible = [
        document
        for document in documents
        if not any(part.startswith(".") for part in document.place.parts)
    ]
    if not visible:
        raise SoonerError(f"'{place}' has no documents; known are {', '.join(SUFFIXES)}")
    return sorted(visible, key=lambda document: natural(document.place))


def _apart(documents: list[Document]) -> list[Document]:
    """Documents of the same place get the folders that tell them apart, and so does one that has
    the place that another gets by that."""
    places = {document: document.place for document in documents}
    same: dict[Document, Path] = {}
    while True:
        counts = Counter(places.values())
        more = [each for each in documents if counts[places[each]] > 1 and each not in same]
        if not more:
            return [replace(document, place=place) for document, place in places.items()]
        same |= {each: _whole_place(each) for each in more}
        root = os.path.commonpath([path.parent for path in same.values()])
        places |= {each: path.relative_to(root) for each, path in same.items()}


def _whole_place(document: Document) -> Path:
    """Returns where a document is, on this machine or on another, as one tree."""
    if document.url is None:
        return document.path.resolve()
    whole = Path("/", *document.url.replace("://", "/", 1).split("/"))
    return whole if whole.name == document.place.name else whole / document.place.name


def natural(path: Path) -> list[tuple[int, int | str]]:
    """Sort key in which digits count as numbers."""
    parts = re.split(r"(\d+)", str(path).lower())
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]
