"""Rows of the papers held against ours: figures, their order, and reasons where there are none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from sooner.errors import SoonerError

from ..readme import value_at
from .links import LINKS
from .links.kinds import (
    ANALYTIC,
    DIRTY,
    NO_FIGURE,
    NOT_YET,
    REASONS,
    REGIMES,
    Comparison,
    Key,
    Links,
    Reason,
)
from .quantities import QUANTITIES
from .results import Results
from .tables import Paper, PaperItem, papers

Figures = dict[str, Any]
BESIDE, ORDER, NONE = "beside", "order", "none"
"""Of a row: figures stand beside each other, are compared in their order alone, or ours lack."""
OTHER_SCALE = "of another machine or other data"


def held(results: Results) -> list[Figures]:
    """Every paper with its rows and the comparisons of its columns."""
    return [hold(paper, LINKS[paper.slug], results) for paper in papers()]


def hold(paper: Paper, links: Links, results: Results) -> Figures:
    """A paper's rows and comparisons.

    Raises:
        SoonerError: a link leads to another quantity, row or column than the paper has, or a row
            has neither a figure of ours nor a reason.
    """
    items = {one.name: one for one in paper.items}
    compared = [_compare(items[link.item], link, results) for link in links.comparisons]
    rows = [
        _row(item, row.group, row.name, row.figures, compared, links)
        for item in paper.items
        for row in item.rows
    ]
    return {
        "paper": paper.name,
        "items": [_shown(one) for one in paper.items],
        "comparisons": compared,
        "rows": rows,
    }


def _shown(item: PaperItem) -> Figures:
    return {
        "item": item.name,
        "about": item.about,
        "nothing": item.nothing,
        "columns": [
            {"column": one.name, "quantity": one.quantity, "is_order": one.is_order}
            for one in item.columns
        ],
        "shown": list(item.shown),
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
        told = None if reason is None else {"kind": reason.kind, "told": reason.report}
        printed = item.row(link.group, name).figures[link.column]
        rows.append(
            {"row": name, "key": str(key), "paper": printed, "ours": ours, "reason": told}
        )  # fmt: skip
    only = link.only_order
    if not only and column.is_order:
        only = "the paper prints no more"
    if not only and not QUANTITIES[link.quantity].of_its_run and link.regime != ANALYTIC:
        only = OTHER_SCALE
    found = order([(one["row"], one["paper"], one["ours"]) for one in rows])
    return {
        "item": link.item,
        "group": link.group,
        "column": link.column,
        "quantity": link.quantity,
        "regime": link.regime,
        "result": link.result,
        "how": _filled(link.how, results.get(link.result)),
        "only_order": only,
        "rows": rows,
        **found,
        "why": link.why if found["verdict"] == "fails" else "",
    }


def figure(results: Results, name: str, key: str | Key) -> tuple[float | None, Reason | None]:
    """Our figure at a key, or why there is none.

    Args:
        name: of the result.
    """
    wanted = Key(key) if isinstance(key, str) else key
    result = results.get(name)
    if result is None:
        return None, Reason(NOT_YET, f"{name}.json is not there")
    values = []
    for one in filter(None, (wanted.key, wanted.minus)):
        if not results.is_clean(name, one):
            return None, Reason(DIRTY, f"{name}.json")
        try:
            value = value_at(result, one)
        except SoonerError:
            value = None
        if not isinstance(value, int | float):
            return None, Reason(NO_FIGURE, f"{one} of {name}.json")
        values.append(value)
    return (values[0] - sum(values[1:]) + wanted.plus) * wanted.times, None


def order(rows: Sequence[tuple[str, float | None, float | None]]) -> Figures:
    """How many pairs of rows stand in the paper's order with us too.

    Pairs that are equal in the paper are not counted; pairs that are equal with us alone are not in
    its order.

    Args:
        rows: name, the paper's figure and ours.

    Returns:
        `pairs`, `in_order`, `against` (pairs of names, the one that the paper has lower first) and
        `verdict`: `holds`, `fails`, or `no pair`.
    """
    pairs, against = 0, []
    for one, other in combinations(rows, 2):
        if None in one or None in other or one[1] == other[1]:
            continue
        low, high = sorted((one, other), key=lambda row: row[1] or 0.0)
        pairs += 1
        if (low[2] or 0.0) >= (high[2] or 0.0):
            against.append([low[0], high[0]])
    verdict = "no pair" if not pairs else "fails" if against else "holds"
    return {
        "pairs": pairs, "in_order": pairs - len(against), "against": against, "verdict": verdict,
    }  # fmt: skip


def _row(
    item: PaperItem,
    group: str,
    name: str,
    printed: Mapping[str, float | None],
    compared: Sequence[Figures],
    links: Links,
) -> Figures:
    """A row: the paper's figures, ours, or the reason why there are none."""
    ours, reasons, status = [], [], NONE
    for one in compared:
        if (one["item"], one["group"]) != (item.name, group):
            continue
        for own in one["rows"]:
            if own["row"] != name:
                continue
            if own["ours"] is None:
                reasons.append(own["reason"])
                continue
            fields = ("column", "quantity", "regime", "result", "how", "only_order")
            known = [each["ours"] for each in one["rows"] if each["ours"] is not None]
            place = 1 + sum(each < own["ours"] for each in known)
            ours.append(
                {field: one[field] for field in fields}
                | {"value": own["ours"], "rank": place, "of": len(known)}
            )
            if not one["only_order"]:
                status = BESIDE
            elif status == NONE:
                status = ORDER
    reason = None
    if not ours:
        reason = reasons[0] if reasons else _given(links, item.name, group, name)
    return {
        "item": item.name, "group": group, "row": name, "paper": dict(printed),
        "status": status, "ours": ours, "reason": reason,
    }  # fmt: skip


def _given(links: Links, item: str, group: str, name: str) -> dict[str, str]:
    """The reason that a row without a link has."""
    place = " / ".join(filter(None, (item, group, name)))
    given = links.reason(item, group, name)
    if given is None:
        raise SoonerError(f"{place} has neither a figure nor a reason; add one to its links")
    if given.kind not in REASONS:
        raise SoonerError(f"{place}: '{given.kind}' is no reason; see `REASONS`")
    return {"kind": given.kind, "told": given.report}


def summary(found: Sequence[Figures]) -> Figures:
    """Counts over all papers: tables, figures, rows by status, orders by verdict, reasons."""
    rows = [row for paper in found for row in paper["rows"]]
    compared = [one for paper in found for one in paper["comparisons"]]
    return {
        **items(found),
        "rows": len(rows),
        "status": dict(Counter(row["status"] for row in rows)),
        "orders": dict(Counter(one["verdict"] for one in compared)),
        "regimes": {
            regime: dict(Counter(one["verdict"] for one in compared if one["regime"] == regime))
            for regime in REGIMES
        },
        "reasons": dict(Counter(row["reason"]["kind"] for row in rows if row["reason"])),
        "nothing": dict(
            Counter(
                one["nothing"] for paper in found for one in paper["items"] if one["nothing"]
            )
        ),
    }  # fmt: skip


def items(found: Sequence[Figures]) -> dict[str, int]:
    """How many tables and figures there are."""
    names = [one["item"].split()[0] for paper in found for one in paper["items"]]
    return {"tables": names.count("table"), "figures": names.count("figure")}


def _filled(text: str, result: Figures | None) -> str:
    """`text` with the figures at the keys in its braces; `?` where there is none."""

    def say(found: re.Match[str]) -> str:
        try:
            return f"{value_at(result, found[1]):,}"
        except SoonerError:
            return "?"

    return re.sub(r"\{(.+?)\}", say, text)


def _place(link: Comparison) -> str:
    return " / ".join(filter(None, (link.item, link.group, link.column)))
