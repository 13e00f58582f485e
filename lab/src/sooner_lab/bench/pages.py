"""What every result's page has: tables, a head that says where it comes from, linked figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ReportTable:
    """A titled table of formatted cells, and a remark below it."""

    title: str
    heads: list[str]
    rows: list[list[str]]
    remark: str = ""


def goals_table(rows: Sequence[Mapping[str, Any]], wanted: str = "wanted") -> ReportTable:
    """Goals and the worst point of each.

    Args:
        rows: `goal`, `wanted`, `at_most` where that is a ceiling, `reached`, `where`, `points`,
            `missed` (pairs of a point and its value) and `met`.
        wanted: head of the column of bounds; under `"wanted"` each says its side.
    """
    lines, missed = [], []
    for row in rows:
        side = ("at most " if row["at_most"] else "at least ") if wanted == "wanted" else ""
        lines.append(
            [
                row["goal"],
                f"{side}{row['wanted']:g}",
                f"{row['reached']:.3f}",
                row["where"],
                f"{row['points'] - len(row['missed'])} of {row['points']}",
                "met" if row["met"] else "**missed**",
            ]
        )
        if row["missed"]:
            told = "; ".join(f"{where}: {value:.3f}" for where, value in row["missed"])
            missed.append(f"{row['goal']}: {told}")
    remark = "Fixed before any result. The worst point counts."
    if missed:
        remark += " Missed: " + " · ".join(missed) + "."
    return ReportTable("Goals", ["goal", wanted, "worst", "at", "points met", ""], lines, remark)


def head(result: Mapping[str, Any], source: str, title: str) -> list[str]:
    """Title, origin and provenance, and which parts an earlier run left.

    Args:
        result: with `provenance`, and `kept` if it was added to.
        source: the JSON that the page is made from.
        title: of the page.
    """
    origin = result["provenance"]
    versions = origin["versions"]
    return [
        f"# {title}",
        "",
        f"Made from [`{source}`]({source}) by `sooner bench report`; don't edit.",
        "",
        f"`{' '.join(origin['argv'])}` · {origin['date']} · {revision(origin)} · "
        f"{origin['device']}, {_threads(origin)}, {origin['dtype']} · torch "
        f"{versions['torch']}, transformers {versions['transformers']}",
        *_dirty(origin),
        *_kept(result),
    ]


def revision(origin: Mapping[str, Any]) -> str:
    """The revision that a result's provenance names, and whether the tree was clean."""
    told = f"revision `{origin['git']}`"
    return f"{told} **+ uncommitted changes**" if origin.get("git_dirty") else told


def _dirty(origin: Mapping[str, Any]) -> list[str]:
    if not origin.get("git_dirty"):
        return []
    return [
        "",
        "> **Measured on a dirty tree**: files differed from this revision, so it does not give "
        "these figures again. Measure anew at a clean revision before quoting them.",
    ]


def _kept(result: Mapping[str, Any]) -> list[str]:
    lines = []
    for run in result.get("kept", []):
        made = run["provenance"]
        lines += [
            "",
            f"Of an earlier run: {', '.join(run['parts'])} (`{' '.join(made['argv'])}` · "
            f"{made['date']} · {revision(made)}).",
        ]
    return lines


def sections(tables: Sequence[ReportTable]) -> list[str]:
    """Every table under its title."""
    lines: list[str] = []
    for table in tables:
        lines += ["", f"## {table.title}", "", *table_lines(table.heads, table.rows)]
        lines += ["", table.remark] if table.remark else []
    return lines


def table_lines(heads: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    rule = ["---"] * len(heads)
    return ["| " + " | ".join(line) + " |" for line in (heads, rule, *rows)]


def pictures(captions: Mapping[str, str], source: str) -> list[str]:
    """Figures by name and caption, as they lie in `figures/` beside the page."""
    lines: list[str] = []
    for name, caption in captions.items():
        path = f"figures/{source.removesuffix('.json')}-{name}"
        lines += ["", f"![{caption}]({path}.png)", "", f"*{caption}*"]
    return ["", "## Figures", *lines] if lines else []


def figures_folder(path: Path) -> Path:
    """Where the figures of the result at `path` lie."""
    return path.parent / "figures"


def cell(value: Any, form: str) -> str:
    """A formatted figure; a dash for what was not measured."""
    return "–" if value is None else form.format(value)


def _threads(origin: dict[str, Any]) -> str:
    """Torch threads, and those of a draft process beside."""
    told = f"{origin['threads']} thread(s)"
    draft = origin.get("draft_threads")
    return f"{told} and {draft} of the draft process" if draft else told
