"""Page ranges as people write them: `1-4,7`, from 1."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import SoonerError

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
