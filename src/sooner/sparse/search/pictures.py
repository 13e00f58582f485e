"""A picture of a pattern table."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...errors import SoonerError
from ..table import PatternTable

SUFFIXES = (".png", ".svg")

# Okabe and Ito's colours, which stay apart for the colour-blind.
COLOURS = {
    "dense": "#000000",
    "a-shape": "#E69F00",
    "tri-shape": "#F0E442",
    "vertical-slash": "#0072B2",
    "grid": "#009E73",
    "strided": "#56B4E9",
    "strided-fixed": "#999999",
    "q-boundary": "#D55E00",
    "2d-boundary": "#CC79A7",
}
"""By the pattern's name."""


def check_matplotlib() -> None:
    """Refuse to draw without it.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise SoonerError(
            "drawing needs matplotlib, which is not installed; pip install 'sooner[plots]'"
        )


def table_figure(table: PatternTable) -> Any:
    """Draws heads by layers, each in the colour of its pattern's kind, with its error.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    heads, layers = max(len(layer) for layer in table.layers), len(table.layers)
    inches = max(0.4 * layers, 6.0), 0.3 * heads + 1.8
    figure = Figure(figsize=inches, layout="constrained")
    axes = figure.add_subplot(xlabel="layer", ylabel="head")
    picture = torch.ones(heads, layers, 3)
    for number, layer in enumerate(table.layers):
        for place, head in enumerate(layer):
            colour = torch.tensor(to_rgb(COLOURS[head.pattern.name]))
            picture[place, number] = colour
            if head.score is not None:
                ink = "black" if float(colour.mean()) > 0.5 else "white"
                score = f"{head.score:.2f}"
                axes.text(number, place, score, fontsize=6, color=ink, ha="center", va="center")
    axes.imshow(picture.numpy(), aspect="auto")
    _legend(figure, table)
    return figure


def _legend(figure: Any, table: PatternTable) -> None:
    from matplotlib.patches import Patch

    names = [head.pattern.name for layer in table.layers for head in layer]
    used = sorted(set(names), key=names.count, reverse=True)
    patches = [Patch(color=COLOURS[name], label=f"{name} ({names.count(name)})") for name in used]
    figure.legend(handles=patches, loc="outside lower center", ncols=min(len(used), 4), fontsize=8)
    figure.suptitle(
        f"{Path(table.model).name}: patterns by layer and head\nnumbers: relative output error",
        fontsize=9,
    )


def save(make: Callable[[], Any], path: Path) -> list[Path]:
    """Write a figure as PNG or SVG by the path's suffix, both if it has none.

    Raises:
        SoonerError: another suffix, or a place that can't be written.
    """
    if path.suffix and path.suffix.lower() not in SUFFIXES:
        raise SoonerError(f"'{path}' ends in {path.suffix}; pictures end in .png or .svg")
    paths = [path] if path.suffix else [path.with_suffix(suffix) for suffix in SUFFIXES]
    if not path.parent.is_dir():
        raise SoonerError(f"folder '{path.parent}' does not exist; make it, or use another -o")
    import matplotlib

    figure = make()
    with matplotlib.rc_context({"svg.hashsalt": "sooner"}):  # the same data, the same file
        for target in paths:
            is_svg = target.suffix.lower() == ".svg"
            try:
                figure.savefig(target, dpi=150, **({"metadata": {"Date": None}} if is_svg else {}))
            except OSError as error:
                raise SoonerError(f"'{target}' can't be written: {error.strerror}") from error
    return paths
