"""The tables of trained drafters, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell, head, sections

COLUMNS = (
    ("method", "method", "{}"), ("tokens", "tokens", "{}"),
    ("tokens_per_second", "tokens/s", "{:.1f}"), ("decode_speedup", "decode", "{:.2f}×"),
    ("mean_acceptance_length", "acceptance length", "{:.2f}"),
    ("theory_speedup", "theory", "{:.2f}×"), ("parity", "parity", "{}"),
)  # fmt: skip


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """Goals, speed, and acceptance by depth."""
    goals = [
        [one["goal"], f"at least {one['wanted']:g}", f"{one['reached']:.2f}",
         "met" if one["met"] else "**missed**"]
        for one in result["goals"]
    ]  # fmt: skip
    found = [ReportTable("Goals", ["figure", "wanted", "reached", ""], goals, FIXED)]
    rows = [[cell(arm.get(key), form) for key, _, form in COLUMNS] for arm in result["arms"]]
    title = f"{result['model']}, {result['clips']} clips"
    found.append(ReportTable(title, [heading for _, heading, _ in COLUMNS], rows, SPEED))
    deep = [arm for arm in result["arms"] if arm.get("depths")]
    if deep:
        heads = ["method", "same weights as", *map(str, range(1, len(deep[0]["depths"]) + 1))]
        lines = [
            [arm["method"], arm["baseline"] or "", *(f"{share:.1%}" for share in arm["depths"])]
            for arm in deep
        ]
        found.append(ReportTable("Acceptance by depth", heads, lines, DEPTHS))
    return found


FIXED = (
    "Fixed in `sooner_lab.bench.drafters.arms` before this run, and committed after a smoke run of "
    "one clip had been seen: not blind."
)
SPEED = (
    "One run, all arms in turns; *theory* is what the arm's own acceptance and step times allow. "
    "The target is a miniature of 28 small layers, of which four are trained: what a head costs "
    "beside it is not what one costs beside a model of billions, so acceptance is the figure to "
    "read here."
)
DEPTHS = "Share of steps in which at least so many draft tokens were accepted."


def markdown(result: dict[str, Any], source: str) -> str:
    """The page; `source` names the JSON it came from."""
    return "\n".join([*head(result, source, "Trained drafters"), *sections(tables(result))]) + "\n"
