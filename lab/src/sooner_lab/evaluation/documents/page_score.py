"""A Markdown page against annotated blocks: text, formulas, tables, and reading order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ..libraries import needed
from ..metrics import edit_distance, teds, teds_structure
from .benchmark import BenchmarkPage, Figure
from .blocks import Kind, PageBlock, read_blocks
from .matching import Match, match, shifted
from .omnidocbench import TrueBlock
from .plain import bare_latex, plain

METRICS: Mapping[str, str] = {
    "text_edit": "edit distance of text, mean of pages (lower is better)",
    "formula_edit": "edit distance of displayed formulas, mean of pages (lower is better)",
    "table_teds": "TEDS, mean of tables (higher is better)",
    "table_teds_s": "TEDS without texts of cells, mean of tables (higher is better)",
    "order_edit": "edit distance of the reading order, mean of pages (lower is better)",
}

_NORMAL: Mapping[str, Callable[[str], str]] = {"text": plain, "formula": bare_latex}


def score_page(sample: BenchmarkPage, texts: Sequence[str]) -> list[Figure]:
    """Figures of a page; a metric without anything to be scored on the page has none.

    Args:
        sample: whose truth is a list of `TrueBlock`.
        texts: the prediction, of which the first counts; none is an empty one.

    Raises:
        SoonerError: a library is not installed.
    """
    observed = read_blocks(texts[0] if texts else "")
    truth: Sequence[TrueBlock] = sample.truth
    matches = {kind: _matches(kind, observed, truth) for kind in ("text", "formula")}
    tables = _table_matches(observed, truth)
    figures = [
        *_edits("text_edit", matches["text"], truth),
        *_edits("formula_edit", matches["formula"], truth),
        *_tables(tables, observed, truth),
        *_order([*matches["text"], *matches["formula"], *tables], truth),
    ]
    return [Figure(name, value, sample.groups) for name, value in figures]


def _matches(kind: Kind, observed: Sequence[PageBlock], truth: Sequence[TrueBlock]) -> list[Match]:
    """Matches of blocks of a kind, with their places on the page."""
    normal = _NORMAL[kind]
    texts = {n: text for n, b in enumerate(observed) if b.kind == kind and (text := normal(b.text))}
    true = {n: text for n, b in enumerate(truth) if b.kind == kind and (text := normal(b.text))}
    marks = [truth[n].is_scored for n in true]
    matches = match(list(texts.values()), list(true.values()), marks)
    return [shifted(pair, list(texts), list(true)) for pair in matches]


def _edits(
    name: str, matches: Sequence[Match], truth: Sequence[TrueBlock]
) -> Iterator[tuple[str, float]]:
    """Edits by letters of all blocks that must be there, and of what nobody asked for."""
    counted = [pair for pair in matches if all(truth[n].is_scored for n in pair.meant)]
    if any(pair.meant for pair in counted):
        length = sum(pair.length for pair in counted)
        yield name, sum(pair.edits for pair in counted) / length


def _table_matches(observed: Sequence[PageBlock], truth: Sequence[TrueBlock]) -> list[Match]:
    """Each true table with the prediction's that is nearest by its text, one to one."""
    tables = [n for n, block in enumerate(observed) if block.kind == "table"]
    true = [n for n, block in enumerate(truth) if block.kind == "table" and block.is_scored]
    if not tables or not true:
        return [Match((), (n,), 0, 0) for n in true]
    optimize = needed("scipy.optimize", "the matching of tables")
    costs = [
        [edit_distance(plain(observed[a].text), plain(truth[b].text)) for b in true] for a in tables
    ]
    rows, columns = optimize.linear_sum_assignment(np.array(costs))
    of = {true[b]: tables[a] for a, b in zip(rows, columns, strict=True)}
    return [Match((of[n],) if n in of else (), (n,), 0, 0) for n in true]


def _tables(
    matches: Sequence[Match], observed: Sequence[PageBlock], truth: Sequence[TrueBlock]
) -> Iterator[tuple[str, float]]:
    for pair in matches:
        predicted = observed[pair.observed[0]].text if pair.observed else ""
        true = truth[pair.meant[0]].text
        yield "table_teds", teds(predicted, true)
        yield "table_teds_s", teds_structure(predicted, true)


def _order(matches: Sequence[Match], truth: Sequence[TrueBlock]) -> Iterator[tuple[str, float]]:
    """Blocks as the prediction orders them against as they are read; a miss counts as deleted."""
    places = {
        n: (pair.observed, k)
        for pair in matches
        for k, n in enumerate(pair.meant)
        if truth[n].is_scored and truth[n].order is not None
    }
    if not places:
        return
    meant = sorted(places)  # the truth is in reading order
    ordered = sorted((where[0][0], where[1], n) for n, where in places.items() if where[0])
    distance = needed("rapidfuzz.distance", "the reading order")
    observed = [n for *_, n in ordered]
    yield "order_edit", float(distance.Levenshtein.normalized_distance(observed, meant))
