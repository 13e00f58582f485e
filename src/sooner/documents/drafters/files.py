"""Files that were saved beforehand, found by the names of the documents that they are about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from ...errors import SoonerError
from ..inputs import natural
from ..page import Page

FROM_ZERO = re.compile(r"_page_(\d+)(?:_\w+)?|_(\d+)_res")
"""Page numbers as dots.ocr (`paper_page_0`) and PaddleX (`paper_0_res`) put them into names."""

FROM_ONE = re.compile(r"[-_](\d+)")
WHOLE = re.compile(r"|_res|_content_list|_middle")
"""What stands behind a document's name if a file is about all of it, in order of preference."""


class SavedFiles:
    """Files of a folder and the folders in it, or one file.

    Args:
        root: a folder, or a file that is meant for every document.
        suffixes: of the files that count.

    Raises:
        SoonerError: no such file or folder.
    """

    def __init__(self, root: Path, suffixes: Sequence[str]) -> None:
        self.root = root
        if not root.exists():
            raise SoonerError(f"'{root}' does not exist; give a file, or a folder of files")
        self.single = root if root.is_file() else None
        self.by_start: dict[str, list[Path]] = defaultdict(list)  # first 4 letters -> files
        for path in sorted(root.rglob("*"), key=natural) if root.is_dir() else []:
            if path.suffix.lower() in suffixes and path.is_file():
                self.by_start[path.stem[:4]].append(path)

    def of(self, page: Page) -> list[tuple[Path, bool]]:
        """Files that may be about a page, the best first, and whether they are of it alone."""
        if self.single is not None:
            return [(self.single, False)]
        stem = page.source.stem
        found: list[tuple[int, Path]] = []
        for path in self.by_start.get(stem[:4], []):
            rank = _rank(path.stem, stem, page.number)
            if rank is not None:
                found.append((rank, path))
        return [(path, rank == 0) for rank, path in sorted(found, key=lambda one: one[0])]


def _rank(name: str, stem: str, number: int) -> int | None:
    """0 for a file of that page, more for one of the document, `None` for another one's."""
    if not name.startswith(stem):
        return None
    rest = name[len(stem) :]
    if match := FROM_ZERO.fullmatch(rest):
        return 0 if int(match[1] or match[2]) + 1 == number else None
    if match := FROM_ONE.fullmatch(rest):
        return 0 if int(match[1]) == number else None
    if WHOLE.fullmatch(rest):
        return 1 + ["", "_content_list", "_res", "_middle"].index(rest)
    return None
