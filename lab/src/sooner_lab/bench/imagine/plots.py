"""The paper's figures from a result file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..figures import check_matplotlib, save, subplots

# Okabe and Ito's colours, which stay apart for the colour-blind; markers differ as well.
LOOK: dict[str, dict[str, Any]] = {
    "plain": {"color": "#000000", "marker": None, "label": "plain AR"},
    "hf": {"color": "#777777", "marker": None, "label": "HF generate"},
    "sjd": {"color": "#D55E00", "marker": "s", "label": "SJD"},
    "maximal": {"color": "#0072B2", "marker": "o", "label": "maximal coupling"},
    "gumbel": {"color": "#009E73", "marker": "^", "label": "Gumbel coupling"},
    "gumbel-noise": {"color": "#56B4E9", "marker": "v", "label": "Gumbel, verified by noise"},
    "gsd": {"color": "#CC79A7", "marker": "D", "label": "GSD (relaxed)"},
}

Data = dict[str, Any]
PANEL = (4.3, 3.6)
"""Inches of one axis with its labels."""


def write_figures(result: Data, folder: Path, stem: str = "imagine") -> list[str]:
    """Draw every figure that the result has data for; returns the files' names.

    They are named after the bench and not after `stem`, like the story's, drawn during the run.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    check_matplotlib()
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for kind in ("image", "video"):
        for name, make in FIGURES.items():
            figure = make(result, kind)
            if figure is not None:
                files += save(figure, folder / f"imagine-{kind}-{name}")
    return files


def windows(result: Data, kind: str) -> Any:
    """Forwards and decoding time over L: the shape of tables 1 and 2."""
    arms = [arm for arm in result["arms"] if arm["kind"] == kind]
    if not any(arm["window"] for arm in arms):
        return None
    starts = list(dict.fromkeys(arm.get("init") for arm in arms if arm["window"]))
    title = f"{kind}: what a larger window brings"
    figure, axes = subplots(2, title, PANEL, rows=len(starts))
    names = (("nfe", "forwards (NFE) a drawing"), ("decode_seconds", "decoding time, seconds"))
    panels = [(init, key, name) for init in starts for key, name in names]
    for axis, (init, key, name) in zip(axes, panels, strict=True):
        axis.set_title(f"all from {init}" if init else "", fontsize=9)
        for method, look in LOOK.items():
            line = [
                arm
                for arm in arms
                if arm["method"] == method
                and arm.get(key) is not None
                and (arm["window"] is None or arm.get("init") == init)
            ]
            if not line:
                continue
            if line[0]["window"] is None:
                axis.axhline(line[0][key], ls=":" if method == "hf" else "--", **_plain(look))
            else:
                axis.plot([arm["window"] for arm in line], [arm[key] for arm in line], **look)
        ticks = sorted({arm["window"] for arm in arms if arm["window"]})
        axis.set(xscale="log", yscale="log", xlabel="window L, tokens", ylabel=name)
        axis.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
        axis.set_xticks([], minor=True)
        axis.margins(y=0.12)
        _plain_numbers(axis)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="outside right center")
    return figure


def trajectories(result: Data, kind: str) -> Any:
    """Figure 3: the acceptance rate of a place over its iterations."""
    study = result.get(kind, {}).get("study")
    if not study:
        return None
    told = study["trajectories"]
    figure, axes = subplots(3, f"{kind}: does a draft get better? (L = {study['window']})", PANEL)
    for axis, method in zip(axes, ("sjd", "maximal"), strict=False):
        axis.set_prop_cycle(
            color=["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
        )
        for line in told[method]["lines"]:
            axis.plot(range(1, len(line) + 1), line, linewidth=1, alpha=0.9)
        axis.set_title(f"single places, {LOOK[method]['label']}", fontsize=9)
    for method, one in told.items():
        mean, spread = np.array(one["mean"]), np.array(one["deviation"])
        steps = np.arange(1, len(mean) + 1)
        look = {**LOOK[method], "markersize": 3}
        axes[2].plot(steps, mean, **look)
        low, high = np.clip(mean - spread, 0, 1), np.clip(mean + spread, 0, 1)
        axes[2].fill_between(steps, low, high, color=look["color"], alpha=0.12, linewidth=0)
    axes[2].set_title("all places, mean and standard deviation", fontsize=9)
    axes[2].legend(fontsize=8)
    for axis in axes:
        axis.set(ylim=(0, 1.02), xlabel="iterations since the place was first drafted")
    axes[0].set_ylabel("acceptance rate 1 − TV")
    return figure


def collision(result: Data, kind: str) -> Any:
    """Figure 4: how often consecutive drafts agree, and the bounds of the couplings."""
    study = result.get(kind, {}).get("study")
    if not study:
        return None
    figure, axes = subplots(2, f"{kind}: collision probability (L = {study['window']})", (5.2, 3.6))
    points = np.array(study["collisions"]["sjd"]["points"]).reshape(-1, 2)
    coupled = np.array(study["collisions"]["maximal"]["points"]).reshape(-1, 2)
    bins = np.linspace(0, 1, 26)
    for values, method in ((points[:, 1], "sjd"), (1 - coupled[:, 0], "maximal")):
        weights = np.full(len(values), 1 / max(len(values), 1))
        look = _plain(LOOK[method])
        axes[0].hist(values, bins, weights=weights, alpha=0.6, **look)
    axes[0].set(xlabel="chance that consecutive drafts agree", ylabel="share of places")
    axes[0].legend(fontsize=8)
    tv = np.linspace(0, 1, 101)
    axes[1].plot(tv, 1 - tv, "k--", linewidth=1, label="1 − TV (no coupling can exceed it)")
    bound = (1 - tv) / (1 + tv)
    axes[1].plot(tv, bound, color="#009E73", ls=":", label="(1 − TV) / (1 + TV) (Gumbel's bound)")
    axes[1].scatter(*points.T, s=5, alpha=0.35, color="#D55E00", linewidth=0, label="SJD, Σ p q")
    for method in ("sjd", "maximal", "gumbel"):
        _agreed(axes[1], study["collisions"][method]["bins"], method)
    axes[1].set(xlabel="total variation of consecutive distributions", ylabel="Pr[X = Y]")
    axes[1].set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes[1].legend(fontsize=7)
    return figure


def _agreed(axis: Any, bins: list[Data], method: str) -> None:
    """The share of drafts that did agree, by distance, with two standard errors."""
    tv, share = [one["tv"] for one in bins], np.array([one["agreed"] for one in bins])
    error = 2 * np.sqrt(share * (1 - share) / np.array([one["count"] for one in bins]))
    look = {**LOOK[method], "label": f"{LOOK[method]['label']}, observed"}
    axis.errorbar(tv, share, error, ls="", markersize=5, capsize=2, **look)


def strength(result: Data, kind: str) -> Any:
    """Figure 5: forwards against token difference and against the strength of the coupling."""
    study = result.get(kind, {}).get("study")
    if not study:
        return None
    figure, axes = subplots(2, f"{kind}: coupling strength (L = {study['window']})", PANEL)
    for method in ("maximal", "gumbel"):
        line = [one for one in study["strengths"] if one["coupling"] == method]
        nfe = [one["nfe"] for one in line]
        axes[0].plot([100 * one["hamming"]["1"] for one in line], nfe, **LOOK[method])
        axes[1].plot([one["strength"] for one in line], nfe, **LOOK[method])
    axes[0].set(xlabel="drafts changed by an iteration, %", ylabel="forwards (NFE) a drawing")
    axes[1].set(xlabel="coupling strength α", ylabel="forwards (NFE) a drawing")
    axes[1].legend(fontsize=8)
    return figure


def hamming(result: Data, kind: str) -> Any:
    """Figure 6: share of drafts that differ after one, two and three iterations."""
    study = result.get(kind, {}).get("study")
    if not study:
        return None
    figure, axes = subplots(
        3, f"{kind}: drafts changed after N iterations (L = {study['window']})", (3.6, 3.6)
    )
    for axis, reach in zip(axes, ("1", "2", "3"), strict=True):
        for method in ("maximal", "gumbel"):
            line = [one for one in study["strengths"] if one["coupling"] == method]
            differ = [100 * one["hamming"][reach] for one in line]
            axis.plot([one["strength"] for one in line], differ, **LOOK[method])
        axis.set_title(f"N = {reach}", fontsize=9)
        axis.set(xlabel="coupling strength α", ylim=(0, 100))
    axes[0].set_ylabel("drafts changed, %")
    axes[0].legend(fontsize=8, loc="lower left")
    return figure


def _plain(look: Data) -> Data:
    return {name: value for name, value in look.items() if name != "marker"}


def _plain_numbers(axis: Any) -> None:
    """Whole numbers on a logarithmic scale, not powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


FIGURES: dict[str, Callable[[Data, str], Any]] = {
    "windows": windows,
    "trajectories": trajectories,
    "collision": collision,
    "strength": strength,
    "hamming": hamming,
}
"""Tables 1 and 2 as curves, then figures 3, 4, 5 and 6."""
