"""The page of the papers: a table a paper, every row folded below it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..render import Page, ReportTable, cell, table_lines
from .held import BESIDE, NONE, ORDER, items
from .links.kinds import REGIMES
from .quantities import QUANTITIES
from .tables import NOTHING

Figures = dict[str, Any]
ABOUT = (
    "Every table and figure of the five papers, appendices included, and ours. A figure of ours "
    "stands beside the paper's only where both count the same quantity; seconds, bytes and scores "
    "of another machine or other data, and a few more that say why, are compared in their order "
    "alone. No ratio of ours to a paper's is given: the models differ. *Order* counts the pairs of "
    "rows that the paper has in an order and that we have in the same; one pair against it, a tie "
    "of ours included, and it fails. No interval is asked, so a small difference counts as a large "
    "one. Results of a tree with uncommitted changes are refused."
)
NAMED = 3
"""Pairs against an order that are named; more are in the JSON."""
HEADS = ["of the paper", "column", "paper", "ours", "regime", "on", "order", "why not, or remark"]


def _intro(result: Figures) -> list[str]:
    lines = ["", ABOUT, ""]
    for name, about in REGIMES.items():
        found = result["summary"]["regimes"][name]
        counts = f"{found.get('holds', 0)} orders hold, {found.get('fails', 0)} fail"
        lines.append(f"- *{name}*: {about}. {counts if found else 'None so far'}.")
    return lines


def _tables(result: Figures) -> list[ReportTable]:
    """Return the summary, the reasons, and a table a paper."""
    return [_summary(result), _reasons(result), *(_paper(one) for one in result["papers"])]


def _read(result: Figures) -> list[str]:
    read = "; ".join(
        f"[`{name}`]({name}.json) `{one['git'][:8]}`" for name, one in result["results"].items()
    )
    return ["", f"Read: {read}."]


def _summary(result: Figures) -> ReportTable:
    rows = []
    for paper in result["papers"]:
        count = items([paper])
        status = [row["status"] for row in paper["rows"]]
        verdicts = [one["verdict"] for one in paper["comparisons"]]
        rows.append(
            [paper["paper"], count["tables"], count["figures"], len(status),
             *(status.count(one) for one in (BESIDE, ORDER, NONE)),
             verdicts.count("holds"), verdicts.count("fails")]
        )  # fmt: skip
    rows.append(["all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])])
    heads = [
        "paper", "tables", "figures", "rows", "beside ours", "order alone", "no figure",
        "orders that hold", "that fail",
    ]  # fmt: skip
    return ReportTable("Summary", heads, [[str(one) for one in row] for row in rows])


def _reasons(result: Figures) -> ReportTable:
    found = result["summary"]
    counts = sorted(found["reasons"].items(), key=lambda pair: -pair[1])
    rows = [[kind, f"{count} row(s)"] for kind, count in counts]
    rows += [
        [NOTHING[kind], f"{count} table(s) and figure(s)"]
        for kind, count in sorted(found["nothing"].items(), key=lambda pair: -pair[1])
    ]
    return ReportTable("Why there is no figure", ["reason", "of"], rows)


def _paper(paper: Figures) -> ReportTable:
    rows = [_compared(one) for one in paper["comparisons"]]
    held, failed = (
        sum(one["verdict"] == verdict for one in paper["comparisons"])
        for verdict in ("holds", "fails")
    )
    remark = (
        f"{held} orders hold, {failed} fail. *paper* and *ours*: from the least to the greatest; "
        "below, where the order alone is compared, ours is its place from the least."
    )
    text = "\n".join([remark, *_without(paper), *_folded(paper)])
    return ReportTable(paper["paper"], HEADS, rows, text)


def _compared(one: Figures) -> list[str]:
    form = QUANTITIES[one["quantity"]].form
    only = one["only_order"]
    sides = ["–", "–"] if only else [_span(one["rows"], side, form) for side in ("paper", "ours")]
    remarks = [_against(one["against"]), one["why"], f"order alone: {only}" if only else ""]
    return [
        _place(one), one["column"], *sides, one["regime"], one["how"], _verdict(one),
        "; ".join(filter(None, remarks)),
    ]  # fmt: skip


def _against(pairs: list[list[str]]) -> str:
    """The pairs that the paper has in another order, as it has them."""
    if len(pairs) > NAMED:
        return ""
    return ", ".join(f"not {low} < {high}" for low, high in pairs)


def _span(rows: Iterable[Figures], side: str, form: str) -> str:
    known = [one[side] for one in rows if one["paper"] is not None and one["ours"] is not None]
    if not known:
        return "–"
    ends = list(dict.fromkeys(form.format(one) for one in (min(known), max(known))))
    return " to ".join(ends)


def _verdict(one: Figures) -> str:
    if not one["pairs"]:
        return "–"
    told = f"{one['in_order']} of {one['pairs']}"
    return f"{told}, holds" if one["verdict"] == "holds" else f"{told}, **fails**"


def _without(paper: Figures) -> list[str]:
    """What has no figure of ours, by reason."""
    places: dict[tuple[str, str], dict[str, int]] = {}
    for row in paper["rows"]:
        if row["reason"]:
            found = places.setdefault((row["reason"]["kind"], row["reason"]["told"]), {})
            found[_place(row)] = found.get(_place(row), 0) + 1
    told = []
    for (kind, what), own in places.items():
        where = "; ".join(f"{place}, {_rows(count)}" for place, count in own.items())
        told.append(f"- {kind} ({what}): {where}")
    for nothing, what in NOTHING.items():
        names = [one["item"] for one in paper["items"] if one["nothing"] == nothing]
        if names:
            told.append(f"- {what}: {', '.join(names)}")
    return ["", "No figure of ours:", "", *told] if told else []


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _folded(paper: Figures) -> list[str]:
    """Every row of every table and figure."""
    lines = ["", '<details markdown="1">', f"<summary>All {len(paper['rows'])} rows</summary>", ""]
    heads = ["of the paper", "row", "the paper's", "ours, or why there is none"]
    shown = {one["item"]: one for one in paper["items"]}
    rows = [
        [_place(row), row["row"], _printed(row, shown[row["item"]]), _ours(row)]
        for row in paper["rows"]
    ]
    return [*lines, *table_lines(heads, rows), "", "</details>"]


def _printed(row: Figures, item: Figures) -> str:
    told = []
    for column in item["columns"]:
        value = row["paper"][column["column"]]
        if column["column"] not in item["shown"] or value is None:
            continue
        own = item["other"].get(row["row"], {}).get(column["quantity"], column["quantity"])
        text = f"rank {value}" if column["is_order"] else cell(value, QUANTITIES[own].form)
        told.append(f"{column['column']} {text}")
    return "; ".join(told) or "–"


def _ours(row: Figures) -> str:
    if row["reason"]:
        return str(row["reason"]["kind"])
    found: dict[str, list[str]] = {}
    columns = [(one["regime"], one["column"]) for one in row["ours"]]
    for one in row["ours"]:
        is_twice = columns.count((one["regime"], one["column"])) > 1
        whose = f"{one['regime']} ({one['how']})" if is_twice else one["regime"]
        text = f"{one['rank']} of {one['of']}"
        if not one["only_order"]:
            text = QUANTITIES[one["quantity"]].form.format(one["value"])
        found.setdefault(whose, []).append(f"{one['column']} {text}")
    return "; ".join(f"{whose}: {', '.join(told)}" for whose, told in found.items())


def _place(one: Figures) -> str:
    return ", ".join(filter(None, (one["item"], one["group"])))


PAGE = Page("The papers, table by table", (_tables,), intro=_intro, outro=_read)
