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
    heard = read_blocks(texts[0] if texts else "")
    truth: Sequence[TrueBlock] = sample.truth
    found = {kind: _matches(kind, heard, truth) for kind in ("text", "formula")}
    tables = _table_matches(heard, truth)
    figures = [
        *_edits("text_edit", found["text"], truth),
        *_edits("formula_edit", found["formula"], truth),
        *_tables(tables, heard, truth),
        *_order([*found["text"], *found["formula"], *tables], truth),
    ]
    return [Figure(name, value, sample.groups) for name, value in figures]


def _matches(kind: Kind, heard: Sequence[PageBlock], truth: Sequence[TrueBlock]) -> list[Match]:
    """Matches of blocks of a kind, with their places on the page."""
    normal = _NORMAL[kind]
    said = {n: text for n, b in enumerate(heard) if b.kind == kind and (text := normal(b.text))}
    true = {n: text for n, b in enumerate(truth) if b.kind == kind and (text := normal(b.text))}
    marks = [truth[n].is_scored for n in true]
    found = match(list(said.values()), list(true.values()), marks)
    return [shifted(one, list(said), list(true)) for one in found]


def _edits(
    name: str, matches: Sequence[Match], truth: Sequence[TrueBlock]
) -> Iterator[tuple[str, float]]:
    """Edits by letters of all blocks that must be there, and of what nobody asked for."""
    counted = [one for one in matches if all(truth[n].is_scored for n in one.meant)]
    if any(one.meant for one in counted):
        length = sum(one.length for one in counted)
        yield name, sum(one.edits for one in counted) / length


def _table_matches(heard: Sequence[PageBlock], truth: Sequence[TrueBlock]) -> list[Match]:
    """Each true table with the prediction's that is nearest by its text, one to one."""
    said = [n for n, block in enumerate(heard) if block.kind == "table"]
    true = [n for n, block in enumerate(truth) if block.kind == "table" and block.is_scored]
    if not said or not true:
        return [Match((), (n,), 0, 0) for n in true]
    optimize = needed("scipy.optimize", "the matching of tables")
    costs = [
        [edit_distance(plain(heard[a].text), plain(truth[b].text)) for b in true] for a in said
    ]
    rows, columns = optimize.linear_sum_assignment(np.array(costs))
    of = {true[b]: said[a] for a, b in zip(rows, columns, strict=True)}
    return [Match((of[n],) if n in of else (), (n,), 0, 0) for n in true]


def _tables(
    matches: Sequence[Match], heard: Sequence[PageBlock], truth: Sequence[TrueBlock]
) -> Iterator[tuple[str, float]]:
    for one in matches:
        said = heard[one.heard[0]].text if one.heard else ""
        true = truth[one.meant[0]].text
        yield "table_teds", teds(said, true)
        yield "table_teds_s", teds_structure(said, true)


def _order(matches: Sequence[Match], truth: Sequence[TrueBlock]) -> Iterator[tuple[str, float]]:
    """Blocks as the prediction orders them against as they are read; a miss counts as deleted."""
    places = {
        n: (one.heard, k)
        for one in matches
        for k, n in enumerate(one.meant)
        if truth[n].is_scored and truth[n].order is not None
    }
    if not places:
        return
    meant = sorted(places)  # the truth is in reading order
    said = sorted((where[0][0], where[1], n) for n, where in places.items() if where[0])
    distance = needed("rapidfuzz.distance", "the reading order")
    heard = [n for *_, n in said]
    yield "order_edit", float(distance.Levenshtein.normalized_distance(heard, meant))
