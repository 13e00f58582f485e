"""The page of `sooner bench soak`."""

from __future__ import annotations

from ..declared import Data
from ..render import Page, Table

LOOK = ("seconds", "rss", "children_rss", "descriptors", "threads", "children")
"""What a look in the JSON holds, in its order; see `SoakedServer.look`."""
ROWS = 10
"""Looks that the table of memory shows."""


def _about(result: Data) -> list[str]:
    settings = result["settings"]
    clients = settings.get("clients") or settings["processes"] * settings["threads"]
    text = (
        f"`sooner serve {result['model']}` for {settings['minutes']:g} minutes under {clients} "
        "clients, which ask, hang up, read slowly, send what is too large, malformed, damaged or "
        "late."
    )
    if result.get("kills"):
        text += f" Of its processes that decode {result['kills']} were killed meanwhile."
    return ["", text]


def _kinds(result: Data) -> list[Data]:
    kinds: dict[str, list[tuple[str, int]]] = {}
    for kind, end, times in result["counts"]:
        kinds.setdefault(kind, []).append((end, times))
    return [
        {
            "kind": kind,
            "times": sum(times for _, times in ends),
            "ends": ", ".join(f"{times} × {end}" for end, times in ends),
        }
        for kind, ends in kinds.items()
    ]


def _looks(result: Data) -> list[Data]:
    looks = [dict(zip(LOOK, look, strict=True)) for look in result["looks"]]
    chosen = [looks[number * (len(looks) - 1) // (ROWS - 1)] for number in range(ROWS)]
    return [
        {**result["before"], "when": "idle before"},
        *({**look, "when": f"{look['seconds'] / 60:.1f} min"} for look in chosen),
        {**result["after"], "when": "idle behind"},
    ]


def _growth(result: Data) -> str:
    grown, children = result["growth"], result["children_growth"]
    return (
        f"Behind the first sixth the server grows by {grown['slope']:+.2f} MiB a minute (95 %: "
        f"{grown['low']:+.2f} to {grown['high']:+.2f}), its processes together by "
        f"{children['slope']:+.2f} ({children['low']:+.2f} to {children['high']:+.2f}): Theil and "
        "Sen's "
        "slope of the medians of thirty parts."
    )


def _outro(result: Data) -> list[str]:
    lines = []
    for name, heading in (("broken", "Broken"), ("faults", "Lines of the log")):
        if result[name]:
            lines += ["", f"## {heading}", "", *[f"- `{each}`" for each in result[name]]]
    return lines


PAGE = Page(
    "Soak",
    (
        Table(
            "Laws", "laws",
            (
                (lambda row: "kept" if row["holds"] else "**broken**", "", "{}"),
                ("law", "law", "{}"),
                (lambda row: row.get("report", row.get("told")), "seen", "{}"),
            ),
        ),
        Table(
            "What clients did", _kinds,
            (("kind", "", "{}"), ("times", "times", "{}"), ("ends", "ends", "{}")),
            "Numbers are statuses of refusals; `left` hung up itself. `ask` is a well-formed "
            "request, with or without a stream, clips and pictures; its answer is compared with "
            "the one that it had alone.",
        ),
        Table(
            "Memory", _looks,
            (
                ("when", "", "{}"), ("rss", "MiB", "{:.0f}"),
                ("children_rss", "MiB of its processes", "{:.0f}"),
                ("descriptors", "descriptors", "{}"), ("threads", "threads", "{}"),
                ("children", "processes", "{}"),
            ),
            _growth,
        ),
    ),
    intro=_about,
    outro=_outro,
)  # fmt: skip
