"""Speed by category of page: what HSD's tables 1 to 3, A1 and A2 have beside scores.

Of pages that were parsed with `--compare`, and so decoded plainly, too. A rate of a group is one of
totals: draft tokens accepted over verifications (AAL, eq. 14), and plain seconds over those with
drafts, of decoding and from the page's picture to its text (eq. 13; the drafter counts in full).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .benchmark import Benchmark
from .evaluation import ALL
from .intervals import interval

Line = Mapping[str, Any]
HEADS = ("AAL", "SR decode", "SR e2e", "pages")


@dataclass(frozen=True)
class Rate:
    """A rate over pages, with bounds of 95 % (bootstrap over pages)."""

    value: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class GroupSpeed:
    """The speed of a group of pages.

    Attributes:
        group: kind and label, as in `Mean`.
        aal: draft tokens accepted by a verification of the page.
        decode, e2e: times as fast as plain decoding.
        pages: that came to their end, plainly and with drafts, and say the same where they must.
        asked: pages of the group that were compared.
        wrong: those whose text has to be plain decoding's and is not: bugs.
    """

    group: tuple[str, str]
    aal: Rate | None
    decode: Rate | None
    e2e: Rate | None
    pages: int
    asked: int
    wrong: int


def compared_lines(
    lines_of_place: Callable[[str], Sequence[Line]], benchmark: Benchmark
) -> dict[str, Line]:
    """Manifest lines of pages that were compared with plain decoding, by the page's name.

    Args:
        lines_of_place: a document's lines, such as `job.delivery.lines`.
    """
    compared = {}
    for sample in benchmark.samples:
        for line in lines_of_place(sample.place.as_posix()):
            if line["page"] == sample.number and line.get("compared"):
                compared[sample.name] = line
    return compared


def speeds(lines: Mapping[str, Line], benchmark: Benchmark) -> list[GroupSpeed]:
    """The speed of all pages, then of each group.

    Args:
        lines: of `compared_lines`.
    """
    groups: dict[tuple[str, str], list[Line]] = {(ALL, ""): []}
    for sample in benchmark.samples:
        if sample.name in lines:
            for group in ((ALL, ""), *sorted(sample.groups.items())):
                groups.setdefault(group, []).append(lines[sample.name])
    ordered = sorted(groups, key=lambda group: (group[0] != ALL, group))
    return [_speed(group, groups[group]) for group in ordered if groups[group]]


def _speed(group: tuple[str, str], lines: Sequence[Line]) -> GroupSpeed:
    timed = [line for line in lines if line["compared"]["decode_speedup"] is not None]
    wrong = sum(
        line["mode"] == "exact" and line["compared"]["parity"] != "identical" for line in lines
    )
    seconds = [line["seconds"].get("decode", 0.0) for line in timed]
    decode = [
        took * line["compared"]["decode_speedup"] for took, line in zip(seconds, timed, strict=True)
    ]
    plain = [line["compared"]["plain_seconds"] for line in timed]
    e2e = [took / line["compared"]["e2e_speedup"] for took, line in zip(plain, timed, strict=True)]
    steps = [float(line["steps"]) for line in timed]
    accepted = [count * (line["aal"] or 0.0) for count, line in zip(steps, timed, strict=True)]
    rates = _rate(accepted, steps), _rate(decode, seconds), _rate(plain, e2e)
    return GroupSpeed(group, *rates, len(timed), len(lines), wrong)


def _rate(above: Sequence[float], below: Sequence[float]) -> Rate | None:
    """One total over the other, pages drawn again with replacement for its interval."""
    if not sum(below):
        return None
    sums, counts = np.array(above)[:, None], np.array(below)[:, None]  # [pages, 1]
    value = sums.sum() / counts.sum()
    bounds = _bounds(sums, counts)
    return Rate(float(value), bounds)


def _bounds(sums: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """As `interval`, whose means are sums over counts; counts below 1 are scaled up for it."""
    scale = 1 / max(float(counts[counts > 0].min()), 1e-12)
    low, high = interval(sums, counts * scale, np.random.default_rng(0))
    return low * scale, high * scale


def speed_lines(groups: Sequence[GroupSpeed], pages: int) -> Iterator[str]:
    """A table by group, and what is not in it.

    Args:
        pages: of the benchmark.
    """
    from .table import aligned

    if not groups:
        yield "no page was compared with plain decoding; parse them anew with --compare --fresh"
        return
    rows = [["", *HEADS]]
    for group in groups:
        name = ALL if group.group[0] == ALL else f"{group.group[0]}: {group.group[1]}"
        rows.append([name, *map(_format, (group.aal, group.decode, group.e2e)), str(group.pages)])
    yield from aligned(rows)
    whole = groups[0]
    yield "SR: times as fast as plain decoding of the same pages; the drafter counts in full"
    if whole.asked < pages:
        missing = f"{pages - whole.asked} of {pages} pages were not compared"
        yield (
            f"{missing}: they failed, or are of a run without --compare (--fresh parses them anew)"
        )
    if whole.wrong:
        yield f"{whole.wrong} pages differ from plain decoding where they must not: a bug"
    if left := whole.asked - whole.pages - whole.wrong:
        yield f"{left} pages did not come to their end, plainly or with drafts: no speed is told"


def _format(figure: Rate | None) -> str:
    if figure is None:
        return "-"
    low, high = figure.interval
    return f"{figure.value:.2f} [{low:.2f}, {high:.2f}]"
