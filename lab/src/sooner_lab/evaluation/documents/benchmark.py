"""A benchmark's pages, whichever layout its files have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from sooner.checks import check_whole
from sooner.errors import SoonerError


@dataclass(frozen=True)
class BenchmarkPage:
    """A page with what is true of it.

    Attributes:
        name: of its prediction as the official scorer looks for it, without `.md`; it may have
            folders.
        place: of its document among the benchmark's own, such as `arxiv/2503.01.pdf`.
        source: where that should be; a picture or a PDF.
        number: of the page in it, from 1.
        truth: what the benchmark says; each has its own form.
        groups: labels of the page by kind, such as `{"language": "english"}`.
    """

    name: str
    place: PurePosixPath
    source: Path
    number: int
    truth: Any
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Benchmark:
    """Pages to be parsed and scored.

    Attributes:
        kind: name of the benchmark, see `kinds`.
        folder: where it was read from.
        samples: its pages.
        left_out: what is not scored, with how many there are.
    """

    kind: str
    folder: Path
    samples: tuple[BenchmarkPage, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    def limited(self, pages: int | None) -> Benchmark:
        """At most so many pages, evenly spread, so that no kind of document is first.

        Raises:
            SoonerError: fewer than one.
        """
        if pages is None or pages >= len(self.samples):
            return self
        check_whole("limit", pages)
        step = len(self.samples) / pages
        chosen = tuple(self.samples[int(number * step)] for number in range(pages))
        return replace(self, samples=chosen)

    def check_sources(self) -> None:
        """Refuse to parse what is not there.

        Raises:
            SoonerError: a page's picture or PDF is missing.
        """
        missing = [sample.source for sample in self.samples if not sample.source.is_file()]
        if missing:
            raise SoonerError(
                f"{len(missing)} of {len(self.samples)} pages of {self.kind} have no file, such as "
                f"'{missing[0]}'; fetch the benchmark as a whole, or score --predictions"
            )


@dataclass(frozen=True)
class Figure:
    """One value of one metric.

    Attributes:
        metric: see the benchmark's `metrics`.
        value: 0 to 1.
        groups: labels by kind that it counts under.
        name: what it is of, where a page has several that are named, such as unit tests.
    """

    metric: str
    value: float
    groups: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
