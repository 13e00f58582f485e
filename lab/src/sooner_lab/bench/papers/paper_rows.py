"""Rows of the papers held against ours: figures, their order, and reasons where there are none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from sooner.errors import SoonerError

from ..readme import value_at
from .quantities import ANALYTIC, DIRTY, NO_FIGURE, NOT_YET, QUANTITIES, REASONS, REGIMES
from .results import Results
from .tables import Comparison, Key, Paper, PaperItem, Reason, papers

Figures = dict[str, Any]
SIDE_BY_SIDE, ORDER, NONE = "beside", "order", "none"
"""The regime of a row: figures stand beside each other, are compared in their order alone, or
ours lack.
"""
OTHER_SCALE = "of another machine or other data"
MIN_SAMPLES = 5
"""Clips, pages, drawings or starts that an order needs: fewer have no interval worth the name."""
WITHDRAWN, TOO_SMALL = "withdrawn", REASONS[-1]
"""The verdict on an order of fewer, and the reason of rows that have nothing else."""


def compare_papers(results: Results) -> list[Figures]:
    """Every paper with its rows and the comparisons of its columns."""
    return [hold(paper, results) for paper in papers()]


def hold(paper: Paper, results: Results) -> Figures:
    """A paper's rows and comparisons.

    Raises:
        SoonerError: a link leads to another quantity, row or column than the paper has, or a row
            has neither a figure of ours nor a reason.
    """
    items = {entry.name: entry for entry in paper.items}
    compared = [_compare(items[link.item], link, results) for link in paper.comparisons]
    rows = [
        _row(item, row.group, row.name, row.figures, compared, paper)
        for item in paper.items
        for row in item.rows
    ]
    return {
        "paper": paper.name,
        "items": [_describe(entry) for entry in paper.items],
        "comparisons": compared,
        "rows": rows,
    }


def _describe(item: PaperItem) -> Figures:
    return {
        "item": item.name,
        "about": item.about,
        "nothing": item.nothing,
        "columns": [
            {"column": column.name, "quantity": column.quantity, "is_order": column.is_order}
            for column in item.columns
        ],
        "shown": list(item.visible),
        "other": item.other,
    }


def _compare(item: PaperItem, link: Comparison, results: Results) -> Figures:
    """A column of some rows beside ours."""
    column = item.column(link.column)
    if link.regime not in REGIMES:
        raise SoonerError(f"{_place(link)}: '{link.regime}' is no regime; see `REGIMES`")
    rows: list[Figures] = []
    for name, key in link.arms.items():
        counted = item.quantity(name, link.column)
        if counted != link.quantity:
            raise SoonerError(
                f"{_place(link)}: '{name}' counts {QUANTITIES[counted].report}, our {key} "
                f"{QUANTITIES[link.quantity].report}; unlike things are not compared"
            )
        ours, reason = figure(results, link.result, key)
        reason_row = None if reason is None else {"kind": reason.kind, "told": reason.report}
        printed = item.row(link.group, name).figures[link.column]
        rows.append(
            {"row": name, "key": str(key), "paper": printed, "ours": ours, "reason": reason_row}
        )  # fmt: skip
    only = link.only_order
    if not only and column.is_order:
        only = "the paper prints no more"
    if not only and not QUANTITIES[link.quantity].of_its_run and link.regime != ANALYTIC:
        only = OTHER_SCALE
    spans = {name: _at(results.get(link.result), key) for name, key in link.intervals.items()}
    verdict = order([(row["row"], row["paper"], row["ours"]) for row in rows], spans)
    samples = _samples(link, results)
    if verdict["verdict"] != "no pair" and samples is not None and samples < MIN_SAMPLES:
        verdict = {"pairs": 0, "in_order": 0, "against": [], "open": [], "verdict": WITHDRAWN}
    return {
        "item": link.item,
        "group": link.group,
        "column": link.column,
        "quantity": link.quantity,
        "regime": link.regime,
        "result": link.result,
        "how": _filled(link.how, results.get(link.result)),
        "only_order": only,
        "samples": samples,
        "rows": rows,
        **verdict,
        "why": link.why if verdict["verdict"] == "fails" else "",
    }


def figure(results: Results, name: str, key: Key) -> tuple[float | None, Reason | None]:
    """Our figure at a key, or why there is none.

    Args:
        name: of the result.
    """
    result = results.get(name)
    if result is None:
        return None, Reason(NOT_YET, f"{name}.json is not there")
    values = []
    for path in filter(None, (key.key, key.minus)):
        if not results.is_clean(name, path):
            return None, Reason(DIRTY, f"{name}.json")
        value = _at(result, path)
        if not isinstance(value, int | float):
            return None, Reason(NO_FIGURE, f"{path} of {name}.json")
        values.append(value)
    return (values[0] - sum(values[1:]) + key.plus) * key.times, None


def _samples(link: Comparison, results: Results) -> int | None:
    """How many inputs our figures are of; `None` where they are calculated or there are none.

    Raises:
        SoonerError: the link does not say it.
    """
    result = results.get(link.result)
    if link.regime == ANALYTIC or result is None:
        return None
    if not link.samples:
        raise SoonerError(f"{_place(link)}: how many inputs is it of? Give `samples`")
    samples = link.samples if isinstance(link.samples, int) else _at(result, link.samples)
    return None if samples is None else int(samples)


def _at(result: Figures | None, key: str) -> Any:
    """What stands at a key, `None` where nothing does."""
    try:
        return None if result is None else value_at(result, key)
    except SoonerError:
        return None


def order(
    rows: Sequence[tuple[str, float | None, float | None]],
    intervals: Mapping[str, Sequence[float] | None] | None = None,
) -> Figures:
    """How many pairs of rows stand in the paper's order with us too.

    Pairs that are equal in the paper are not counted; pairs that are equal with us alone are not in
    its order. A pair whose intervals overlap is open: neither in the order nor against it.

    Args:
        rows: name, the paper's figure and ours.
        intervals: name -> our 95 % interval, where one is known.

    Returns:
        `pairs` that are not open, `in_order` of them, `against` and `open` (pairs of names, the one
        that the paper has lower first) and `verdict`: `fails` by one pair against it, `open`
        without one and with an open pair, `holds` by all pairs, or `no pair`.
    """
    pairs, against, undecided = 0, [], []
    for first, other in combinations(rows, 2):
        if None in first or None in other or first[1] == other[1]:
            continue
        low, high = sorted((first, other), key=lambda row: row[1] or 0.0)
        spans = [span for row in (low, high) if (span := (intervals or {}).get(row[0]))]
        if len(spans) == 2 and max(span[0] for span in spans) <= min(span[1] for span in spans):
            undecided.append([low[0], high[0]])
            continue
        pairs += 1
        if (low[2] or 0.0) >= (high[2] or 0.0):
            against.append([low[0], high[0]])
    verdict = "fails" if against else "open" if undecided else "holds" if pairs else "no pair"
    return {
        "pairs": pairs, "in_order": pairs - len(against), "against": against, "open": undecided,
        "verdict": verdict,
    }  # fmt: skip


def _row(
    item: PaperItem,
    group: str,
    name: str,
    printed: Mapping[str, float | None],
    compared: Sequence[Figures],
    paper: Paper,
) -> Figures:
    """A row: the paper's figures, ours, or the reason why there are none."""
    ours, reasons, status = [], [], NONE
    for comparison in compared:
        if (comparison["item"], comparison["group"]) != (item.name, group):
            continue
        for arm_row in comparison["rows"]:
            if arm_row["row"] != name:
                continue
            if arm_row["ours"] is None:
                reasons.append(arm_row["reason"])
                continue
            if comparison["verdict"] == WITHDRAWN and comparison["only_order"]:
                reasons.append({"kind": TOO_SMALL, "told": comparison["how"]})
                continue
            fields = ("column", "quantity", "regime", "result", "how", "only_order")
            known = [each["ours"] for each in comparison["rows"] if each["ours"] is not None]
            place = 1 + sum(each < arm_row["ours"] for each in known)
            ours.append(
                {field: comparison[field] for field in fields}
                | {"value": arm_row["ours"], "rank": place, "of": len(known)}
            )
            if not comparison["only_order"]:
                status = SIDE_BY_SIDE
            elif status == NONE:
                status = ORDER
    reason = None
    if not ours:
        reason = reasons[0] if reasons else _reason(paper, item.name, group, name)
    return {
        "item": item.name, "group": group, "row": name, "paper": dict(printed),
        "status": status, "ours": ours, "reason": reason,
    }  # fmt: skip


def _reason(paper: Paper, item: str, group: str, name: str) -> dict[str, str]:
    """The reason that a row without a link has."""
    place = " / ".join(filter(None, (item, group, name)))
    reason = paper.reason(item, group, name)
    if reason is None:
        raise SoonerError(f"{place} has neither a figure nor a reason; add one to its links")
    if reason.kind not in REASONS:
        raise SoonerError(f"{place}: '{reason.kind}' is no reason; see `REASONS`")
    return {"kind": reason.kind, "told": reason.report}


def summary(all_papers: Sequence[Figures]) -> Figures:
    """Counts over all papers: tables, figures, rows by status, orders by verdict, reasons."""
    rows = [row for paper in all_papers for row in paper["rows"]]
    compared = [entry for paper in all_papers for entry in paper["comparisons"]]
    return {
        **items(all_papers),
        "rows": len(rows),
        "status": dict(Counter(row["status"] for row in rows)),
        "orders": dict(Counter(entry["verdict"] for entry in compared)),
        "pairs": {"in_order": sum(entry["in_order"] for entry in compared)}
        | {key: sum(len(entry[key]) for entry in compared) for key in ("against", "open")},
        "regimes": {
            regime: dict(
                Counter(row["verdict"] for row in compared if row["regime"] == regime)
            )
            for regime in REGIMES
        },
        "reasons": dict(Counter(row["reason"]["kind"] for row in rows if row["reason"])),
        "nothing": dict(
            Counter(
                row["nothing"] for paper in all_papers for row in paper["items"] if row["nothing"]
            )
        ),
    }  # fmt: skip


def items(all_papers: Sequence[Figures]) -> dict[str, int]:
    """How many tables and figures there are."""
    names = [item["item"].split()[0] for paper in all_papers for item in paper["items"]]
    return {"tables": names.count("table"), "figures": names.count("figure")}


def _filled(text: str, result: Figures | None) -> str:
    """`text` with the figures at the keys in its braces; `?` where there is none."""

    def fill(match: re.Match[str]) -> str:
        try:
            return f"{value_at(result, match[1]):,}"
        except SoonerError:
            return "?"

    return re.sub(r"\{(.+?)\}", fill, text)


def _place(link: Comparison) -> str:
    return " / ".join(filter(None, (link.item, link.group, link.column)))
