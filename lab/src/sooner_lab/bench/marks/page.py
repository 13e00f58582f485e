"""The tables of a result on the world of marks, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell, head, sections
from .settings import ALPHA, CALIBRATED, ENDS, NONE
from .speed_page import baseline_table, speed_tables

SHARES = (
    ("run_length", "M", "{:.2f}"), ("share", "of the unpruned M, %", "{:.1f}"),
    ("interval", "95 % interval", "{}"), ("rejections", "rejections", "{}"),
)  # fmt: skip


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """A table of the gate, and one of the ways to prune where they were read."""
    if "calibration" in result:
        return [_calibration(result["calibration"])]
    found = []
    if "drafts" in result:
        found = [_gate(result)]
        for part in ("criteria", "layers"):
            found += [_ways(draft, part) for draft in result["drafts"] if part in draft]
    if "speed" in result:
        found += speed_tables(result["speed"])
    if "baselines" in result:
        found.append(baseline_table(result["baselines"]))
    return found


def _calibration(told: dict[str, Any]) -> ReportTable:
    rows = [
        [
            f"{one['clear']:g}",
            cell(one["whole"]["run_length"], "{:.2f}"),
            *_share(one["blind"])[1:],
            cell(one["target_score"], "{:.2f}"),
        ]
        for one in told["tried"]
    ]
    heads = ["contrast", "M", *[heading for _, heading, _ in SHARES[1:]], "target right"]
    remark = f"Nearest to a blind share of {CALIBRATED:g} %: contrast {told['clear']:g}."
    return ReportTable(f"Calibration by the blind draft, {told['draft']}", heads, rows, remark)


def _gate(result: dict[str, Any]) -> ReportTable:
    rows = []
    for draft in result["drafts"]:
        told = draft["gate"]
        whole = [draft["draft"], "unpruned", *_share(told["whole"]), "", ""]
        rows.append(whole)
        for one in told["arms"]:
            verdict = "yes" if one["met"] and one["sure"] else "unsure" if one["met"] else "no"
            rows.append([draft["draft"], one["arm"], *_share(one), one["wanted"], verdict])
        if NONE in told:
            rows.append([draft["draft"], NONE, *_share(told[NONE]), "", ""])
    may = [one["draft"] for one in result["drafts"] if one["gate"]["may_judge"]]
    remark = (
        f"Captions of {result['settings']['clips']} held-out clips; a share has to be sure to "
        f"3 points. The target has {result['target']['score']:.0%} of the words right that need "
        f"the pixels. May judge: {', '.join(may) or 'none'}."
    )
    heads = ["draft", "tokens", *[heading for _, heading, _ in SHARES], "wanted", "met"]
    return ReportTable(f"The gate, α {ALPHA:g}", heads, rows, remark)


def _ways(draft: dict[str, Any], part: str) -> ReportTable:
    """Ways to prune by alpha (`criteria`), or by the layer that they rank at (`layers`)."""
    key, sign, title = {
        "criteria": ("alpha", "α", "Ways to prune"),
        "layers": ("layer", "L", f"Ranked after layer L, α {ALPHA:g}"),
    }[part]
    rows = []
    for one in draft[part]:
        over = one.get("over_random", {"share": None, "interval": None})
        beside = [cell(over["share"], "{:.1f}"), cell(_interval(over["interval"]), "{}")]
        beside += [cell(100 * one["at_the_ends"] if "at_the_ends" in one else None, "{:.1f}")]
        rows.append([one["criterion"], f"{one[key]:g}", *_share(one), *beside])
    heads = ["criterion", sign, *[heading for _, heading, _ in SHARES]]
    heads += ["of the random choice's M, %", "95 % interval", "kept at the ends, %"]
    closed = "" if draft["gate"]["may_judge"] else "The gate is closed: these judge nothing. "
    remark = (
        "A way is better than chance where its last interval lies above 100. *At the ends*: share "
        f"of the kept tokens in the first {ENDS[0]} and the last {ENDS[1]} frames."
    )
    return ReportTable(f"{title}, {draft['draft']}", heads, rows, closed + remark)


def _share(one: dict[str, Any]) -> list[str]:
    told = {**one, "interval": _interval(one["interval"])}
    return [cell(told[key], form) for key, _, form in SHARES]


def _interval(edges: list[float] | None) -> str | None:
    return None if edges is None else f"{edges[0]:.1f} to {edges[1]:.1f}"


def markdown(result: dict[str, Any], source: str) -> str:
    """The page; `source` names the JSON it came from."""
    lines = [*head(result, source, "Marks: which visual tokens a draft needs"), ""]
    return "\n".join([*lines, *sections(tables(result))]) + "\n"
