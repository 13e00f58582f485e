"""The tables of a soak, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, head, sections

LOOK = ("seconds", "rss", "children_rss", "descriptors", "threads", "children")
"""What a look in the JSON holds, in its order; see `server.ServerLook`."""
ROWS = 10
"""Looks that the table of memory shows."""


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """Laws, what clients did, and memory."""
    return [_laws(result), _requests(result), _memory(result)]


def markdown(result: dict[str, Any], source: str) -> str:
    """The page; `source` names the JSON it came from."""
    settings = result["settings"]
    told = (
        f"`sooner serve {result['model']}` for {settings['minutes']:g} minutes under "
        f"{settings['processes']} processes of {settings['threads']} clients each, which ask, hang "
        "up, read slowly, send what is too large, malformed, damaged or late, and under kills of "
        "the processes that decode."
    )
    lines = [*head(result, source, "Soak"), "", told, *sections(tables(result))]
    for name, heading in (("broken", "Broken"), ("faults", "Lines of the log")):
        if result[name]:
            lines += ["", f"## {heading}", "", *[f"- `{one}`" for one in result[name]]]
    return "\n".join(lines) + "\n"


def _laws(result: dict[str, Any]) -> ReportTable:
    rows = [
        ["kept" if one["holds"] else "**broken**", one["law"], one["told"]]
        for one in result["laws"]
    ]
    return ReportTable("Laws", ["", "law", "seen"], rows)


def _requests(result: dict[str, Any]) -> ReportTable:
    kinds: dict[str, list[str]] = {}
    totals: dict[str, int] = {}
    for kind, end, times in result["counts"]:
        kinds.setdefault(kind, []).append(f"{times} × {end}")
        totals[kind] = totals.get(kind, 0) + times
    rows = [[kind, str(totals[kind]), ", ".join(ends)] for kind, ends in kinds.items()]
    remark = (
        "Numbers are statuses of refusals; `left` hung up itself, `400 decoder killed` lost its "
        "file with a process that was killed. `ask` is a well-formed request, with or without a "
        "stream, clips and pictures; its answer is held against the one that it had alone."
    )
    return ReportTable("What clients did", ["", "times", "ends"], rows, remark)


def _memory(result: dict[str, Any]) -> ReportTable:
    looks = [dict(zip(LOOK, one, strict=True)) for one in result["looks"]]
    shown = [looks[number * (len(looks) - 1) // (ROWS - 1)] for number in range(ROWS)]
    named = [("idle before", result["before"]), *((None, one) for one in shown)]
    rows = [
        [
            name or f"{one['seconds'] / 60:.1f} min", f"{one['rss']:.0f}",
            f"{one['children_rss']:.0f}", str(one["descriptors"]), str(one["threads"]),
            str(one["children"]),
        ]
        for name, one in [*named, ("idle behind", result["after"])]
    ]  # fmt: skip
    grown, beside = result["growth"], result["children_growth"]
    remark = (
        f"Behind the first sixth the server grows by {grown['slope']:+.2f} MiB a minute (95 %: "
        f"{grown['low']:+.2f} to {grown['high']:+.2f}), its processes together by "
        f"{beside['slope']:+.2f} ({beside['low']:+.2f} to {beside['high']:+.2f}): Theil and Sen's "
        "slope of the medians of thirty parts."
    )
    heads = ["", "MiB", "MiB of its processes", "descriptors", "threads", "processes"]
    return ReportTable("Memory", heads, rows, remark)
