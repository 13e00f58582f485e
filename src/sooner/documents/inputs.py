"""Finding documents: files, folders and patterns, and page ranges such as `1-4,7`."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import SoonerError, did_you_mean

PART = re.compile(r"\s*(\d+)\s*(?:(-)\s*(\d+)?)?\s*")


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
            if not match:
                raise SoonerError(
                    f"page range '{text}' is not understood; write it as 1-4,7 or 10-"
                )
            first = int(match[1])
            last = (int(match[3]) if match[3] else None) if match[2] else first
            if first < 1:
                raise SoonerError(f"page range '{text}' has page 0; the first page is 1")
            if last is not None and last < first:
                raise SoonerError(
                    f"page range '{text}' runs backwards; did you mean {last}-{first}?"
                )
            parts.append((first, last))
        return cls(tuple(parts))

    def select(self, pages: int) -> list[int]:
        """Numbers of those pages that a document of `pages` pages has."""
        return list(dict.fromkeys(self._numbers(pages)))

    def missing(self, pages: int) -> str:
        """Pages asked for by number that such a document lacks, such as `5-10`; mostly empty."""
        gaps = []
        for first, last in self.parts:
            start, end = max(first, pages + 1), first if last is None else last
            if start <= end:
                gaps.append(f"{start}-{end}" if start < end else str(start))
        return ",".join(gaps)

    def _numbers(self, pages: int) -> Iterator[int]:
        for first, last in self.parts:
            yield from range(first, min(pages if last is None else last, pages) + 1)


PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")

SUFFIXES = (".pdf", *PICTURES)

"""File names that are documents."""


@dataclass(frozen=True)
class Document:
    """A document to read.

    Attributes:
        path: where it is.
        place: where it is in the input tree, so that results can mirror that; of no other document
            of the same search.
    """

    path: Path
    place: Path


def find_documents(inputs: Sequence[str | Path]) -> list[Document]:
    """Documents meant by `inputs`: files, folders searched to the bottom, patterns such as `*.pdf`.

    A folder's are in natural order (`page2` before `page10`), hidden ones left out. A file named
    twice is kept once.

    Raises:
        SoonerError: nothing named so, nothing in it, or a file that is no document.
    """
    found: dict[Path, Document] = {}
    for name in inputs:
        for document in _meant(Path(name)):
            found.setdefault(document.path.resolve(), document)
    return _apart(list(found.values()))


def _meant(path: Path) -> list[Document]:
    if path.is_dir():
        return _inside(path)
    if path.is_file():
        if path.suffix.lower() not in SUFFIXES:
            near = did_you_mean(path.suffix.lower(), SUFFIXES)
            raise SoonerError(
                f"'{path}' is no document by its name{near}; known are {', '.join(SUFFIXES)}"
            )
        return [Document(path, Path(path.name))]
    if glob.has_magic(str(path)):
        return _matching(str(path))
    siblings = [str(other) for other in path.parent.iterdir()] if path.parent.is_dir() else []
    raise SoonerError(f"'{path}' does not exist{did_you_mean(str(path), siblings)}")


def _inside(folder: Path) -> list[Document]:
    found = [
        Document(path, path.relative_to(folder)) for path in folder.rglob("*") if _is_document(path)
    ]
    shown = [one for one in found if not any(part.startswith(".") for part in one.place.parts)]
    if not shown:
        raise SoonerError(f"folder '{folder}' has no documents; known are {', '.join(SUFFIXES)}")
    return sorted(shown, key=lambda document: natural(document.place))


def _matching(pattern: str) -> list[Document]:
    paths = [Path(name) for name in glob.glob(pattern, recursive=True)]
    found = sorted((path for path in paths if _is_document(path)), key=natural)
    if not found:
        raise SoonerError(
            f"pattern '{pattern}' matches no document; quote it, and check the folder"
        )
    fixed = re.split(r"[*?\[]", pattern)[0]
    root = Path(os.path.dirname(fixed) or ".")
    return [Document(path, path.relative_to(root)) for path in found]


def _is_document(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _apart(documents: list[Document]) -> list[Document]:
    """Documents of the same place get the folders that tell them apart."""
    count = Counter(document.place for document in documents)
    same = [document.path.resolve() for document in documents if count[document.place] > 1]
    if not same:
        return documents
    root = os.path.commonpath([path.parent for path in same])
    return [
        replace(document, place=document.path.resolve().relative_to(root))
        if count[document.place] > 1
        else document
        for document in documents
    ]


def natural(path: Path) -> list[tuple[int, int | str]]:
    """Sort key in which digits count as numbers."""
    parts = re.split(r"(\d+)", str(path).lower())
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]
