"""The tables of a result on the world of the arm, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ...worlds.arm.simulator import NAMES, TASKS
from ..pages import ReportTable, head, sections
from . import settings as fixed
from .acceptance import CHAIN, DEPTH, PAPER, SHAPES
from .judging import arm_in, by_deviation, length, paired, ratio, succeeded
from .loops import arm_of

Figures = dict[str, Any]
ABOUT = (
    "> **Trained, and no camera.** A policy of 6 layers of 192 channels imitates scripted experts "
    "of three robosuite tasks (lift, door, nut) with noise on all six axes, one number after the "
    "other, 256 bins over the robot's own range. It reads the state from gauges: what pixels add "
    "is not judged here. Its draft head was trained on what the finished policy says."
)


def tables(result: Figures) -> list[ReportTable]:
    """Gate, regime and goals, then what the result has readings for."""
    found = [_bounds(result, "gate", "Gate"), _bounds(result, "regime", "Regime"), _goals(result)]
    episodes = result.get("episodes", [])
    found += [_success(episodes), _deviation(episodes)]
    arms = result.get("acceptance", {"arms": []})["arms"]
    found += [_lengths(arms), _places(arms), _rounds(arms)]
    return [one for one in found if one.rows]


def markdown(result: Figures, source: str) -> str:
    """The page; `source` names the JSON that it came from."""
    lines = [*head(result, source, "An arm: what relaxed acceptance costs"), "", ABOUT, ""]
    lines.append("Intervals: 95 %, bootstrap over starts or episodes.")
    if any(not one["holds"] for one in result.get("gate", [])):
        lines += ["", "**The gate is not passed: this world may not judge.**"]
    return "\n".join([*lines, *sections(tables(result))]) + "\n"


def _span(interval: Any, form: str) -> str:
    low, high = interval
    return f"[{form.format(low)}, {form.format(high)}]"


def _bounds(result: Figures, part: str, title: str) -> ReportTable:
    rows = [
        [one["what"], _span(one["wanted"], "{:g}"), f"{one['reached']:.2f}",
         "holds" if one["holds"] else "**does not hold**", one["why"]]
        for one in result.get(part, [])
    ]  # fmt: skip
    remark = {
        "gate": "Percent of starts that succeed, each task counting as much; fixed before any "
        f"result. *shaken*: every axis off by {fixed.SHAKEN} bins, in points of plain's.",
        "regime": f"Acceptance lengths of the chains of `{result.get('head', '')}`, the state of "
        "the head that acts: its strict length is the nearest to 1.8.",
    }[part]
    return ReportTable(title, ["what", "wanted", "reached", "", "why"], rows, remark)


def _goals(result: Figures) -> ReportTable:
    rows = [
        [one["goal"], f"above {one['wanted']:g}", f"{one['interval'][0]:.1f}",
         f"{one['difference']:+.1f}", "met" if one["met"] else "**missed**"]
        for one in result.get("goals", [])
    ]  # fmt: skip
    heads = ["goal", "wanted, points", "lower bound", "difference", ""]
    return ReportTable(
        "Goals", heads, rows, "Paired over the same starts, fixed before any result."
    )


def _success(episodes: list[Figures]) -> ReportTable:
    rows = []
    for arm in [arm_of(one) for one in fixed.TOLERANCES]:
        for task in (*TASKS, "all"):
            some = [row for row in episodes if task in ("all", row["task"])]
            if not succeeded(some, arm):
                continue
            told = paired(some, arm)
            far = [row["bins"] for row in some if row["arm"] == arm and "bins" in row]
            rows.append(
                [arm, task, str(told["starts"]), f"{told['success']:.1f}", f"{told['plain']:.1f}",
                 f"{told['difference']:+.1f} {_span(told['interval'], '{:+.1f}')}",
                 str(told["lost"]), str(told["won"]), f"{told['p']:.2g}",
                 f"{sum(far) / max(len(far), 1):.2f}"]
            )  # fmt: skip
    heads = ["arm", "task", "starts", "success, %", "plain, %", "difference, points"]
    heads += ["lost", "won", "p", "bins off"]
    remark = (
        "*lost*, *won*: starts that plain decoding alone does, and that the arm alone does; p by "
        "McNemar's exact test. *bins off*: mean distance of an axis from the exact action."
    )
    return ReportTable("Success by tolerance", heads, rows, remark)


def _deviation(episodes: list[Figures]) -> ReportTable:
    rows = [
        [str(one["third"]), str(one["episodes"]), f"{one['deviation']:.1f}",
         f"{one['success']:.1f}", f"{one['plain']:.1f}"]
        for one in by_deviation(episodes)
    ]  # fmt: skip
    heads = ["third", "episodes", "bins strayed", "success, %", "plain on these starts, %"]
    remark = (
        f"Relaxed episodes, in thirds of their task by their mean distance summed over the first "
        f"{fixed.COUNTED} actions."
    )
    return ReportTable("Success by cumulative deviation", heads, rows, remark)


def _lengths(arms: list[Figures]) -> ReportTable:
    rows = []
    for draft in dict.fromkeys(one["draft"] for one in arms):
        for shape in SHAPES:
            found = {r: arm_in(arms, draft, shape, r) for r in (0, *fixed.TOLERANCES)}
            told = [one for one in found.values() if one is not None]
            if len(told) < len(found):
                continue
            strict, near = told[0], found[9]
            assert near is not None
            spans = [length(one) for one in told]
            rows.append(
                [draft, shape,
                 *(f"{one['value']:.2f} {_span(one['interval'], '{:.2f}')}" for one in spans),
                 f"{ratio(near, strict)['value']:.2f}×", str(sum(strict["rounds"])),
                 str(strict["differing"])]
            )  # fmt: skip
    heads = ["draft", "shape", "strict", *(arm_of(one) for one in fixed.TOLERANCES)]
    heads += ["r=9 over strict", "rounds", "differ"]
    remark = (
        "Tokens a round behind the first number, which the prefill says; 6 at most. *differ*: "
        "strict actions that are not HF's `generate`'s."
    )
    return ReportTable("Acceptance length by draft", heads, rows, remark)


def _places(arms: list[Figures]) -> ReportTable:
    rows = []
    for one in arms:
        if one["shape"] != CHAIN:
            continue
        shares = [
            f"{100 * hit / tried:.0f}" if tried else "–"
            for hit, tried in zip(one["hit"][1:-1], one["tried"][1:-1], strict=True)
        ]
        name = f"r={one['tolerance']}" if one["tolerance"] else "strict"
        rows.append([one["draft"], name, *shares])
    heads = ["draft", "rule", *NAMES[1:-1]]
    remark = "Percent of the drafted numbers that were accepted, by axis, of chains."
    return ReportTable("Acceptance by dimension", heads, rows, remark)


def _rounds(arms: list[Figures]) -> ReportTable:
    rows = []
    for one in arms:
        if one["shape"] != PAPER:
            continue
        name = f"r={one['tolerance']}" if one["tolerance"] else "strict"
        rows.append(
            [name, *(f"{share:.1f}" for share in one["lengths"]),
             *("–" if mean is None else f"{mean:.2f}" for mean in one["positions"])]
        )  # fmt: skip
    heads = ["rule", *(f"{length} accepted, %" for length in range(DEPTH + 1))]
    heads += [f"from {place}" for place in range(DEPTH + 1)]
    remark = (
        "The finished head's trees of 50 nodes, depth 5, top 8. Left: percent of the rounds; "
        "right: draft tokens that a round accepted, by where it began (0: behind the first number; "
        "5: the fingers are left, which are never drafted)."
    )
    return ReportTable("Rounds of the paper's tree", rows=rows, heads=heads, remark=remark)
