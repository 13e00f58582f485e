"""An evaluation as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .evaluation import ALL, Evaluation, Mean
from .kinds import kind_of

MAX_NAMED = 10
"""Pages without a prediction that are named; all of them are in the JSON."""


def lines_of(evaluation: Evaluation) -> Iterator[str]:
    """What was scored, a table by group, what the metrics are, and what is missing."""
    benchmark = evaluation.benchmark
    kind = kind_of(benchmark)
    yield f"{kind.title}, {len(evaluation.pages)} pages"
    yield ""
    yield from aligned(list(_rows(evaluation)))
    yield ""
    metrics = {mean.metric for mean in evaluation.means}
    yield from (f"{name}: {text}" for name, text in kind.metrics.items() if name in metrics)
    if kind.mean_of:
        yield f"{ALL}: the mean of each {kind.mean_of}'s mean"
    yield from (f"left out: {what} ({count})" for what, count in benchmark.left_out.items())
    yield from _problems(evaluation)
    yield kind.official


def _rows(evaluation: Evaluation) -> Iterator[list[str]]:
    metrics = list(dict.fromkeys(mean.metric for mean in evaluation.means))
    groups = list(dict.fromkeys(mean.group for mean in evaluation.means))
    by_group = {(mean.metric, mean.group): mean for mean in evaluation.means}
    yield ["", *metrics, "values"]
    for group in sorted(groups, key=lambda group: (group[0] != ALL, group)):
        means = [by_group.get((metric, group)) for metric in metrics]
        name = ALL if group[0] == ALL else f"{group[0]}: {group[1]}"
        yield [name, *map(_format, means), _counted(means)]


def _format(figure: Mean | None) -> str:
    if figure is None:
        return "-"
    if figure.interval is None:
        return f"{figure.value:.3f}"
    low, high = figure.interval
    return f"{figure.value:.3f} [{low:.3f}, {high:.3f}]"


def _counted(means: Sequence[Mean | None]) -> str:
    """How many values there are, once if all metrics have as many."""
    counts = [str(mean.values) if mean else "-" for mean in means]
    return counts[0] if len(set(counts)) == 1 else "/".join(counts)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *padded]).rstrip()


def _problems(evaluation: Evaluation) -> Iterator[str]:
    problems = evaluation.problems
    if not problems:
        return
    yield f"{len(problems)} of {len(evaluation.pages)} pages count as empty:"
    yield from (f"  {page.name}: {page.problem}" for page in problems[:MAX_NAMED])
    if len(problems) > MAX_NAMED:
        yield f"  and {len(problems) - MAX_NAMED} more, see --json"
