"""The page of the papers: a table a paper, every row folded below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..render import Page, ReportTable, cell, table_lines
from .paper_rows import MIN_SAMPLES, NONE, ORDER, SIDE_BY_SIDE, WITHDRAWN, items
from .quantities import QUANTITIES, REGIMES
from .tables import NOTHING

Figures = dict[str, Any]
ABOUT = (
    "Every table and figure of the five papers, appendices included, and ours. A figure of ours "
    "stands beside the paper's only where both count the same quantity; seconds, bytes and scores "
    "of another machine or other data, and a few more that say why, are compared in their order "
    "alone. No ratio of ours to a paper's is given: the models differ. *Order* counts the pairs of "
    "rows that the paper has in an order and that we have in the same. One pair against it, a tie "
    "of ours included, and it fails; it holds if every pair is in it. A pair whose 95 % intervals "
    "overlap is open, and so is an order with such a pair and none against it. Where a result has "
    "no intervals, a small difference counts as a large one. An order of fewer than "
    f"{MIN_SAMPLES} clips, pages, drawings or starts is withdrawn: such a run tells no order. "
    "A result that stands beside several tables counts at each. Results of a tree with uncommitted "
    "changes are refused."
)
VERDICTS = {"holds": "hold", "fails": "fail", "open": "open", "withdrawn": "withdrawn"}
NAMED = 3
"""Pairs against an order that are named; more are in the JSON."""
HEADS = ["of the paper", "column", "paper", "ours", "regime", "on", "order", "why not, or remark"]


def _intro(result: Figures) -> list[str]:
    lines = ["", ABOUT, ""]
    for name, about in REGIMES.items():
        orders = result["summary"]["regimes"][name]
        lines.append(f"- *{name}*: {about}. {_counts(orders) if orders else 'None so far'}.")
    text = "Of all pairs, {in_order} are in the paper's order, {against} against it, {open} open."
    return [*lines, "", text.format(**result["summary"]["pairs"])]


def _counts(orders: Mapping[str, int]) -> str:
    """How many orders have each verdict, in words."""
    return "Orders: " + ", ".join(f"{orders.get(key, 0)} {text}" for key, text in VERDICTS.items())


def _tables(result: Figures) -> list[ReportTable]:
    """Return the summary, the reasons, and a table a paper."""
    return [_summary(result), _reasons(result), *(_paper(paper) for paper in result["papers"])]


def _read(result: Figures) -> list[str]:
    read = "; ".join(
        f"[`{name}`]({name}.json) `{origin['git'][:8]}`"
        for name, origin in result["results"].items()
    )
    return ["", f"Read: {read}."]


def _summary(result: Figures) -> ReportTable:
    rows = []
    for paper in result["papers"]:
        count = items([paper])
        status = [row["status"] for row in paper["rows"]]
        verdicts = [value["verdict"] for value in paper["comparisons"]]
        rows.append(
            [paper["paper"], count["tables"], count["figures"], len(status),
             *(status.count(value) for value in (SIDE_BY_SIDE, ORDER, NONE)),
             *(verdicts.count(verdict) for verdict in VERDICTS)]
        )  # fmt: skip
    rows.append(["all", *(sum(column) for column in list(zip(*rows, strict=True))[1:])])
    heads = [
        "paper", "tables", "figures", "rows", "beside ours", "order alone", "no figure",
        *(f"orders: {text}" for text in VERDICTS.values()),
    ]  # fmt: skip
    return ReportTable("Summary", heads, [[str(value) for value in row] for row in rows])


def _reasons(result: Figures) -> ReportTable:
    counted = result["summary"]
    counts = sorted(counted["reasons"].items(), key=lambda pair: -pair[1])
    rows = [[kind, f"{count} row(s)"] for kind, count in counts]
    rows += [
        [NOTHING[kind], f"{count} table(s) and figure(s)"]
        for kind, count in sorted(counted["nothing"].items(), key=lambda pair: -pair[1])
    ]
    return ReportTable("Why there is no figure", ["reason", "of"], rows)


def _paper(paper: Figures) -> ReportTable:
    rows = [_compared(entry) for entry in paper["comparisons"]]
    counts = _counts(Counter(entry["verdict"] for entry in paper["comparisons"]))
    remark = (
        f"{counts}. *paper* and *ours*: from the least to the greatest; "
        "below, where the order alone is compared, ours is its place from the least."
    )
    text = "\n".join([remark, *_without(paper), *_folded(paper)])
    return ReportTable(paper["paper"], HEADS, rows, text)


def _compared(entry: Figures) -> list[str]:
    form = QUANTITIES[entry["quantity"]].form
    only = entry["only_order"]
    sides = ["–", "–"] if only else [_span(entry["rows"], side, form) for side in ("paper", "ours")]
    remarks = [
        _pairs(entry["against"], "not {} < {}"), _pairs(entry["open"], "{} and {} open"),
        entry["why"], f"order alone: {only}" if only else "",
    ]  # fmt: skip
    return [
        _place(entry), entry["column"], *sides, entry["regime"], entry["how"], _verdict(entry),
        "; ".join(filter(None, remarks)),
    ]  # fmt: skip


def _pairs(pairs: list[list[str]], form: str) -> str:
    """The pairs by name, unless they are many."""
    return ", ".join(form.format(*pair) for pair in pairs) if len(pairs) <= NAMED else ""


def _span(rows: Iterable[Figures], side: str, form: str) -> str:
    known = [
        value[side] for value in rows if value["paper"] is not None and value["ours"] is not None
    ]
    if not known:
        return "–"
    ends = list(dict.fromkeys(form.format(value) for value in (min(known), max(known))))
    return " to ".join(ends)


def _verdict(entry: Figures) -> str:
    if entry["verdict"] == "no pair":
        return "–"
    if entry["verdict"] == WITHDRAWN:
        return f"withdrawn, n = {entry['samples']}"
    text = f"{entry['in_order']} of {entry['pairs']}"
    if entry["open"]:
        text += f", {len(entry['open'])} open"
    return text + {"holds": ", holds", "open": "", "fails": ", **fails**"}[entry["verdict"]]


def _without(paper: Figures) -> list[str]:
    """What has no figure of ours, by reason."""
    places: dict[tuple[str, str], dict[str, int]] = {}
    for row in paper["rows"]:
        if row["reason"]:
            counts = places.setdefault((row["reason"]["kind"], row["reason"]["told"]), {})
            counts[_place(row)] = counts.get(_place(row), 0) + 1
    lines = []
    for (kind, what), group in places.items():
        where = "; ".join(f"{place}, {_rows(count)}" for place, count in group.items())
        lines.append(f"- {kind} ({what}): {where}")
    for nothing, what in NOTHING.items():
        names = [item["item"] for item in paper["items"] if item["nothing"] == nothing]
        if names:
            lines.append(f"- {what}: {', '.join(names)}")
    return ["", "No figure of ours:", "", *lines] if lines else []


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _folded(paper: Figures) -> list[str]:
    """Every row of every table and figure."""
    lines = ["", '<details markdown="1">', f"<summary>All {len(paper['rows'])} rows</summary>", ""]
    heads = ["of the paper", "row", "the paper's", "ours, or why there is none"]
    items_by_name = {item["item"]: item for item in paper["items"]}
    rows = [
        [_place(row), row["row"], _printed(row, items_by_name[row["item"]]), _ours(row)]
        for row in paper["rows"]
    ]
    return [*lines, *table_lines(heads, rows), "", "</details>"]


def _printed(row: Figures, item: Figures) -> str:
    parts = []
    for column in item["columns"]:
        value = row["paper"][column["column"]]
        if column["column"] not in item["shown"] or value is None:
            continue
        quantity = item["other"].get(row["row"], {}).get(column["quantity"], column["quantity"])
        text = f"rank {value}" if column["is_order"] else cell(value, QUANTITIES[quantity].form)
        parts.append(f"{column['column']} {text}")
    return "; ".join(parts) or "–"


def _ours(row: Figures) -> str:
    if row["reason"]:
        return str(row["reason"]["kind"])
    texts: dict[str, list[str]] = {}
    columns = [(entry["regime"], entry["column"]) for entry in row["ours"]]
    for entry in row["ours"]:
        is_twice = columns.count((entry["regime"], entry["column"])) > 1
        whose = f"{entry['regime']} ({entry['how']})" if is_twice else entry["regime"]
        text = f"{entry['rank']} of {entry['of']}"
        if not entry["only_order"]:
            text = QUANTITIES[entry["quantity"]].form.format(entry["value"])
        texts.setdefault(whose, []).append(f"{entry['column']} {text}")
    return "; ".join(f"{whose}: {', '.join(parts)}" for whose, parts in texts.items())


def _place(entry: Figures) -> str:
    return ", ".join(filter(None, (entry["item"], entry["group"])))


PAGE = Page("The papers, table by table", (_tables,), intro=_intro, outro=_read)
