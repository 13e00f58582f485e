"""The study's figures from a result, as PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..figures import check_matplotlib, save, subplots
from .gantt import gantt
from .page import has_figure

Data = dict[str, Any]

# Okabe and Ito's colours, which stay apart for the colour-blind; markers differ as well.
LOOK: dict[str, Data] = {
    "uv-prune-by-frame": {"color": "#D55E00", "marker": "o", "label": "UV-Prune by frame (ours)"},
    "uv-prune": {"color": "#E69F00", "marker": "P", "label": "UV-Prune (the paper's)"},
    "attention-by-frame": {"color": "#000000", "marker": "*", "label": "attention by frame"},
    "attention": {"color": "#0072B2", "marker": "s", "label": "attention-guided"},
    "attention-variation": {"color": "#56B4E9", "marker": "v", "label": "attention variation"},
    "similarity": {"color": "#CC79A7", "marker": "D", "label": "similarity, no variation"},
    "uniform": {"color": "#009E73", "marker": "^", "label": "uniform"},
    "random": {"color": "#777777", "marker": "x", "label": "random"},
}
EXACT, OURS, LOSSY = "#56B4E9", "#D55E00", "#BBBBBB"


def write_figures(result: Data, folder: Path, stem: str) -> list[str]:
    """Draw every figure that the result has data for; returns the files' names.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    check_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    files: list[str] = []
    for name, make in FIGURES.items():
        if has_figure(result, name):
            files += save(make(result), folder / f"{stem}-{name}")
    return files


def axes(rows: int, columns: int, size: tuple[float, float], title: str) -> tuple[Any, Any]:
    """A figure with a title and light grids; its axes as one list."""
    figure, made = subplots(columns, title, (size[0] / columns, size[1] / rows), rows)
    figure.suptitle(title, fontsize=11)
    for axis in made:
        axis.set_axisbelow(True)
    return figure, made


def speedup(result: Data) -> Any:
    """Bars by method, beside them the simulator's prediction where there is one."""
    arms = [arm for arm in result["arms"] if arm.get("decode_speedup")]
    arms = sorted(arms, key=lambda arm: arm["decode_speedup"])
    figure, (axis,) = axes(1, 1, (7, 0.8 + 0.34 * len(arms)), "Decoding speed over plain decoding")
    for place, arm in enumerate(arms):
        is_ours = arm["method"].startswith("parallel")
        color = OURS if is_ours else EXACT if arm["mode"] == "exact" else LOSSY
        axis.barh(place, arm["decode_speedup"], color=color, height=0.7)
        told = f" {arm['decode_speedup']:.2f}×"
        if arm["mode"] != "exact" and arm.get("acceptance_ratio") is not None:
            told += f"  (lossy, 𝒜 {arm['acceptance_ratio']:.0%})".replace("𝒜", "A")
        simulated = arm.get("simulated_speedup")
        if simulated is not None:
            axis.plot([simulated] * 2, [place - 0.4, place + 0.4], color="black", linewidth=1.5)
        axis.annotate(
            told, (max(arm["decode_speedup"], simulated or 0), place), va="center", fontsize=8
        )
    axis.set_yticks(range(len(arms)), [arm["method"] for arm in arms])
    axis.axvline(1, color="black", linewidth=0.8, linestyle=":")
    axis.margins(x=0.2)
    axis.set_xlim(left=0)
    axis.set_xlabel("speed-up of decoding; black line: what the simulator predicts")
    return figure


def kept(result: Data) -> Any:
    """Figure 7a: kept visual tokens of each frame, a panel a criterion."""
    told = [
        one
        for one in result["sweep"]
        if one.get("kept_by_frame") and one["alpha"] == result["prune"]
    ]
    title = f"Visual tokens that the draft keeps of each frame (α {result['prune']:g})"
    figure, panels = axes(len(told), 1, (7, 0.8 + 1.15 * len(told)), title)
    most = max(max(one["kept_by_frame"]) for one in told)
    for axis, one in zip(panels, told, strict=True):
        counts = one["kept_by_frame"]
        look = LOOK[one["criterion"]]
        axis.bar(range(1, len(counts) + 1), counts, color=look["color"], width=0.85)
        axis.set_ylim(0, 1.1 * most)
        axis.set_xlim(0.3, len(counts) + 0.7)
        axis.set_title(look["label"], fontsize=9, loc="left", pad=3)
        axis.tick_params(labelbottom=axis is panels[-1])
        _mark_scenes(axis, result.get("frames_per_scene"), len(counts))
    panels[-1].set_xlabel("frame" + (", lines between scenes" if result["scenes"] else ""))
    panels[len(panels) // 2].set_ylabel("kept tokens, mean over clips")
    return figure


def _mark_scenes(axis: Any, each: int | None, frames: int) -> None:
    for cut in range(each, frames, each) if each else ():
        axis.axvline(cut + 0.5, color="black", linewidth=0.6, alpha=0.5)


def alpha(result: Data) -> Any:
    """Figure 6: speed-up and accepted run length by pruning ratio."""
    figure, panels = axes(1, 2, (9.5, 3.6), "What pruning the draft costs and brings")
    keys = (("decode_speedup", "speed-up of decoding, ×"), ("draft_run_length", "M, tokens"))
    points = result["sweep"]
    for axis, (key, name) in zip(panels, keys, strict=True):
        for criterion, look in LOOK.items():
            line = [
                (one["alpha"], one[key])
                for one in points
                if one.get(key) and (one["criterion"] == criterion or one["alpha"] == 0)
            ]
            if len(line) > 1:
                axis.plot(*zip(*line, strict=True), linewidth=1.3, markersize=5, **look)
        axis.set(xlabel="pruned share of the visual tokens, α", ylabel=name)
        axis.set_ylim(bottom=0)
    if any(axis.lines for axis in panels):
        next(axis for axis in panels[::-1] if axis.lines).legend(fontsize=8)
    return figure


FIGURES: dict[str, Callable[[Data], Any]] = {
    "speedup": speedup,
    "gantt": gantt,
    "kept": kept,
    "alpha": alpha,
}
