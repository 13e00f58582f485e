"""Needle results as heat maps, length by depth (MMInference, figures 5, 13 and 14)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sooner.errors import SoonerError

from ...needles import ResultGrid
from ..plots import check_matplotlib

TITLES = {"v-niah": "V-NIAH", "mm-niah": "MM-NIAH"}
ACROSS = 2
MANY = 160
"""Cells above which the shares are not written into a map."""


def needle_heatmap(grids: Sequence[ResultGrid], title: str | None = None) -> Any:
    """A heat map for each grid: lengths to the right, depth downwards, red wrong and green right.

    Cells that were not asked are hatched. Returns a matplotlib figure.

    Raises:
        SoonerError: no grids, or no matplotlib.
    """
    check_matplotlib()
    if not grids:
        raise SoonerError("no needle results to draw; give one grid or more")
    from matplotlib.figure import Figure

    across = min(ACROSS, len(grids))
    down = math.ceil(len(grids) / across)
    figure = Figure(figsize=(1.2 + 5.2 * across, 0.6 + 3.4 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    images = [_map(axis, grid) for axis, grid in zip(axes, grids, strict=False)]
    for axis in axes[len(grids) :]:
        axis.set_visible(False)
    figure.colorbar(images[0], ax=axes.tolist(), label="answered right, %", shrink=0.9)
    if title is not None:
        figure.suptitle(title)
    return figure


def _map(axis: Any, grid: ResultGrid) -> Any:
    shares = 100 * grid.accuracy.T  # [depths, lengths]
    axis.set_facecolor("#dddddd")
    axis.patch.set(hatch="///", edgecolor="#999999")
    image = axis.imshow(shares, cmap="RdYlGn", vmin=0, vmax=100, aspect="auto")
    _ticks(axis, grid)
    axis.set_title(f"{TITLES.get(grid.kind, grid.kind)}, {grid.name}: {100 * grid.mean:.1f} %")
    axis.set(xlabel=f"length, {grid.unit}", ylabel="depth of the needle, %")
    if shares.size <= MANY:
        _numbers(axis, shares)
    return image


def _ticks(axis: Any, grid: ResultGrid) -> None:
    every = math.ceil(len(grid.lengths) / 12)
    places = range(0, len(grid.lengths), every)
    axis.set_xticks(places, [short(grid.lengths[place]) for place in places])
    every = math.ceil(len(grid.depths) / 11)
    places = range(0, len(grid.depths), every)
    axis.set_yticks(places, [f"{100 * grid.depths[place]:g}" for place in places])


def _numbers(axis: Any, shares: Any) -> None:
    for row, line in enumerate(shares):
        for column, share in enumerate(line):
            if share == share:  # not asked is NaN
                dark = 25 < share < 85
                axis.text(
                    column, row, f"{share:.0f}", ha="center", va="center", fontsize=7,
                    color="#222222" if dark else "#ffffff",
                )  # fmt: skip


def short(count: int) -> str:
    """`900`, `4.5k`, `1.1M`."""
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            return f"{count / size:.3g}{sign}"
    return str(count)
