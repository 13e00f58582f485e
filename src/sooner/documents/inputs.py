"""Finding documents: files, folders and patterns."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import SoonerError, did_you_mean

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
