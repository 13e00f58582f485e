"""Pages scored, and their figures put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ..libraries import versions
from .benchmark import Benchmark, Figure
from .intervals import interval, mean
from .kinds import kind_of
from .predictions import Texts

ALL = "all"


@dataclass(frozen=True)
class PageFigures:
    """A page's figures.

    Attributes:
        name: of its prediction.
        groups: labels by kind.
        figures: all of them.
        problem: why its prediction counts as empty; empty if it does not.
    """

    name: str
    groups: Mapping[str, str]
    figures: Sequence[Figure]
    problem: str = ""


@dataclass(frozen=True)
class Mean:
    """A metric over a group of pages.

    Attributes:
        metric: its name.
        group: kind and label, such as `("language", "english")`; `("all", "")` for everything.
        value: the mean.
        values: how many it is of: pages, tables or tests.
        pages: how many pages those are on.
        interval: bounds of 95 %, of everything only.
    """

    metric: str
    group: tuple[str, str]
    value: float
    values: int
    pages: int
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Evaluation:
    """A benchmark's figures.

    Attributes:
        benchmark: what was scored.
        pages: each page's figures.
        means: of all pages, then of each group.
        settings: how the predictions came about, where that is known.
    """

    benchmark: Benchmark
    pages: Sequence[PageFigures]
    means: Sequence[Mean]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problems(self) -> list[PageFigures]:
        """Pages whose prediction counts as empty."""
        return [page for page in self.pages if page.problem]

    def value(self, metric: str, group: tuple[str, str] = (ALL, "")) -> float:
        """One mean.

        Raises:
            KeyError: no page has it.
        """
        return {(mean.metric, mean.group): mean.value for mean in self.means}[metric, group]

    def to_json(self) -> dict[str, Any]:
        """Plain data, all pages in it."""
        kind = kind_of(self.benchmark)
        return {
            "benchmark": self.benchmark.kind,
            "folder": str(self.benchmark.folder),
            "official": kind.official,
            "metrics": dict(kind.metrics),
            "settings": dict(self.settings),
            "versions": versions(),
            "counts": {"pages": len(self.pages), "empty": len(self.problems)},
            "left_out": dict(self.benchmark.left_out),
            "empty": [{"page": item.name, "why": item.problem} for item in self.problems],
            "means": [{**asdict(item), "group": list(item.group)} for item in self.means],
            "pages": [
                {
                    "page": page.name,
                    "groups": dict(page.groups),
                    "figures": [_plain(item) for item in page.figures],
                }
                for page in self.pages
            ],
        }


def _plain(figure: Figure) -> dict[str, Any]:
    data = {"metric": figure.metric, "value": figure.value, "groups": dict(figure.groups)}
    return {**data, "name": figure.name} if figure.name else data


def score(
    predictions: Texts | Mapping[str, str],
    benchmark: Benchmark,
    *,
    failed: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    on_page: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score the predictions of a benchmark.

    Args:
        predictions: Markdown by `Sample.name`, from `read_predictions` or made by hand; several
            texts of a page are repeats. A page that is missing counts as empty, and is named.
        failed: reasons by page, for pages that are known to have failed; they count as empty.
        settings: how the predictions came about, kept with the result.
        on_page: told how many pages of how many are done.

    Raises:
        SoonerError: a library is not installed.
    """
    kind, pages = kind_of(benchmark), list[PageFigures]()
    for number, sample in enumerate(benchmark.samples, start=1):
        problem = (failed or {}).get(sample.name, "")
        prediction = predictions.get(sample.name)
        texts = [prediction] if isinstance(prediction, str) else list(prediction or [])
        if not texts and not problem:
            problem = "no prediction"
        figures = kind.score(sample, [] if problem else texts)
        pages.append(PageFigures(sample.name, sample.groups, figures, problem))
        if on_page is not None:
            on_page(number, len(benchmark.samples))
    return Evaluation(benchmark, pages, means_of(benchmark, pages), settings or {})


def means_of(benchmark: Benchmark, pages: Sequence[PageFigures]) -> list[Mean]:
    """Each metric over everything, with its interval, and over each group."""
    kind, generator = kind_of(benchmark), np.random.default_rng(0)
    means = []
    for metric in kind.metrics:
        values = [[figure for figure in page.figures if figure.metric == metric] for page in pages]
        if not any(values):
            continue
        whole = _mean(metric, (ALL, ""), values, kind.mean_of, generator)
        means += [whole, *_grouped(metric, values)]
    return means


def _grouped(metric: str, values: list[list[Figure]]) -> list[Mean]:
    groups = {pair for figures in values for figure in figures for pair in figure.groups.items()}
    return [
        _mean(
            metric, pair, [[f for f in page if f.groups.get(pair[0]) == pair[1]] for page in values]
        )
        for pair in sorted(groups)
    ]


def _mean(
    metric: str,
    group: tuple[str, str],
    values: list[list[Figure]],
    strata: str | None = None,
    generator: np.random.Generator | None = None,
) -> Mean:
    """A mean over pages' figures; of the means of `strata`, if figures have labels of that kind."""
    pages = [figures for figures in values if figures]
    labels = sorted(
        {figure.groups.get(strata or "", "") for figures in pages for figure in figures}
    )
    sums, counts = np.zeros((2, len(pages), len(labels)))  # [pages, strata] each
    for row, figures in enumerate(pages):
        for figure in figures:
            column = labels.index(figure.groups.get(strata or "", ""))
            sums[row, column] += figure.value
            counts[row, column] += 1
    bounds = interval(sums, counts, generator) if generator is not None else None
    value = float(mean(sums.sum(0), counts.sum(0)))
    return Mean(metric, group, value, int(counts.sum()), len(pages), bounds)
