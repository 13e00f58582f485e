"""The figures of a parse result, as PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..figures import COLOURS, MARKERS, draw, subplots

Data = dict[str, Any]
BY_KIND = ("speculative", "prompt-lookup", "hsd-page", "hsd", "hsd-relaxed")
"""Arms that are shown by kind of page."""
LABELS = ("decoding (eq. 12)", "picture to Markdown (eq. 13)")
CURVES = ("image", "letters", "boxes")


def write_figures(result: Data, folder: Path, stem: str) -> list[str]:
    """Draw every figure that the result has data for; returns the files' names.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    return draw({name: FIGURES[name] for name in drawable(result)}, result, folder, stem)


def drawable(result: Data) -> list[str]:
    """Names of the figures that the result has data for."""
    fast = [row for row in result.get("arms") or [] if row.get("decode_speedup")]
    there = {
        "arms": len(fast) > 1 and fast[0]["method"] == "plain",
        "kinds": any(row["method"] in BY_KIND for row in fast),
        "quality": bool((result.get("quality") or {}).get("rows")),
    }
    return [name for name in FIGURES if there[name]]


def arms(result: Data) -> Any:
    """Decode and end-to-end speed-up of each arm."""
    figure, (axis,) = subplots(1, "parsing pages, one at a time", (8.5, 4.2))
    rows = [row for row in result["arms"][1:] if row.get("decode_speedup")]
    for number, (key, label) in enumerate(
        (
            ("decode_speedup", "decoding, drafting left out"),
            ("drafted_speedup", "decoding (eq. 12)"),
            ("e2e_speedup", "picture to Markdown, OCR not hidden (eq. 13)"),
        )
    ):
        at = [place + 0.27 * number - 0.27 for place in range(len(rows))]
        values = [row[key] for row in rows]
        spans = [row[f"{key}_interval"] for row in rows]
        axis.bar(at, values, 0.25, color=COLOURS[number], label=label, yerr=_errors(values, spans),
                 capsize=2, error_kw={"lw": 0.8})  # fmt: skip
    axis.axhline(1, color="black", lw=0.8)
    axis.set_xticks(range(len(rows)), [row["method"] for row in rows], rotation=30, ha="right")
    axis.set_ylabel("times plain decoding")
    axis.legend(fontsize=8)
    return figure


def kinds(result: Data) -> Any:
    """Table 1 as bars: speed-up by kind of page."""
    figure, axes = subplots(2, "by kind of page (table 1)", (6.2, 4.2))
    rows = [row for row in result["arms"] if row["method"] in BY_KIND and row.get("decode_speedup")]
    names = [one["kind"] for one in rows[0]["by_kind"] if one["pages"]]
    for axis, key, label in zip(axes, ("drafted_speedup", "e2e_speedup"), LABELS, strict=True):
        wide = 0.8 / len(rows)
        for number, row in enumerate(rows):
            found = {one["kind"]: one for one in row["by_kind"]}
            at = [place + wide * (number - (len(rows) - 1) / 2) for place in range(len(names))]
            heights = [found[name].get(key) or 0.0 for name in names]
            axis.bar(at, heights, 0.92 * wide, color=COLOURS[number], label=row["method"])
        axis.axhline(1, color="black", lw=0.8)
        axis.set_xticks(range(len(names)), names, rotation=20, ha="right")
        axis.set_ylabel(f"{label}, times plain")
    _below(figure, axes[0])
    return figure


def quality(result: Data) -> Any:
    """Figure 3: AAL and decode speed-up against the quality of the draft."""
    figure, axes = subplots(2, "quality of drafts (figure 3)", (5.6, 4.2))
    told = result["quality"]
    rows = [*told["rows"], *told["garbage"]]
    keys = (("aal", "AAL"), ("drafted_speedup", "decoding (eq. 12), times plain"))
    for axis, (key, label) in zip(axes, keys, strict=True):
        for number, arm in enumerate(dict.fromkeys(row["arm"] for row in rows)):
            mine = [row for row in rows if row["arm"] == arm and row.get(key) is not None]
            _curves(axis, mine, arm, key, number)
        axis.set(xlabel="score of the draft (F1 of its words)", ylabel=label, ylim=(0, None))
    axes[1].axhline(1, color="black", lw=0.8)
    _below(figure, axes[0])
    return figure


def _curves(axis: Any, rows: list[Data], arm: str, key: str, number: int) -> None:
    """One arm: a line for each way in which drafts get worse, points for the two extremes."""
    ocr = [row for row in rows if row["kind"] == "ocr"]
    for place, kind in enumerate(CURVES):
        line = sorted(
            [*ocr, *(row for row in rows if row["kind"] == kind)], key=lambda row: -row["level"]
        )
        axis.plot([row["quality"] for row in line], [row[key] for row in line],
                  color=COLOURS[place + 1], marker=MARKERS[place], ms=4, lw=1.2,
                  ls="-" if number == 0 else "--", label=f"{kind}, {arm}")  # fmt: skip
    for kind, mark in (("truth", "*"), ("garbage", "X")):
        ends = [row for row in rows if row["kind"] == kind]
        axis.plot([row["quality"] for row in ends], [row[key] for row in ends], mark,
                  color="black", ms=8, mfc="black" if number == 0 else "white",
                  label=f"{kind}, {arm}", ls="none")  # fmt: skip


def _below(figure: Any, axis: Any) -> None:
    """One legend for all axes, beneath them."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8)


def _errors(values: list[float], spans: list[list[float]]) -> list[list[float]]:
    low = [max(value - span[0], 0.0) for value, span in zip(values, spans, strict=True)]
    high = [max(span[1] - value, 0.0) for value, span in zip(values, spans, strict=True)]
    return [low, high]


FIGURES: dict[str, Callable[[Data], Any]] = {"arms": arms, "kinds": kinds, "quality": quality}
