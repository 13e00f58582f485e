"""Pictures of a pattern table, and of attention before and after a permutation."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import SoonerError
from ..attention import States
from ..modality import MODALITIES, PromptLayout
from ..patterns import Grid
from ..plane import whole
from ..probe import probe
from ..table import PatternTable

PIXELS = 700
"""Side of an attention map; longer prompts are shown by the strongest pair of each square."""
FLOOR = 1e-5
"""Attention that is drawn as none."""

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
                where = {"ha": "center", "va": "center"}
                axes.text(number, place, f"{head.score:.2f}", fontsize=6, color=ink, **where)
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


@dataclass(frozen=True, eq=False)
class Map:
    """The attention map that one head has.

    Attributes:
        weights: after the softmax, `[tokens, tokens]`.
        layout: of the tokens.
        grid: stride and phase that its last queries show.
    """

    weights: Tensor
    layout: PromptLayout
    grid: tuple[int, int]

    @classmethod
    def of(cls, states: States, layout: PromptLayout, head: int) -> Map:
        """Computes the map from the states of a row without padding."""
        scores = states.queries[head].float() @ states.keys[head // states.group].float().T
        later = torch.ones_like(scores, dtype=torch.bool).triu(1)
        weights = (scores * states.scale).masked_fill_(later, -torch.inf).softmax(1)
        plane = whole(layout)
        seen = probe(states.queries, states.keys, plane, states.scale, torch.tensor([head]))
        spacing = Grid().spacing(plane, seen, 0)
        return cls(weights.cpu(), layout.to("cpu"), (int(spacing.stride), int(spacing.phase)))


def attention_figure(view: Map, title: str) -> Any:
    """Figure 3 of the paper for one head: as it is, by grid, by modality of Q, and of Q and K.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13.6, 3.9), layout="constrained")
    axes = figure.subplots(1, 4)
    stride, phase = view.grid
    plain = torch.arange(len(view.layout))
    by_class = torch.argsort((plain - phase) % stride, stable=True)
    by_kind = torch.argsort(view.layout.modality, stable=True)
    panels: list[tuple[str, Tensor, Tensor]] = [
        ("in the order of the prompt", plain, plain),
        (f"by grid: stride {stride}, phase {phase}", by_class, by_class),
        ("queries by modality", by_kind, plain),
        ("queries and keys by modality", by_kind, by_kind),
    ]
    image: Any = None
    for axis, (name, rows, columns) in zip(axes, panels, strict=True):
        image = _map(axis, view.weights[rows][:, columns])
        axis.set_title(name, fontsize=9)
        _bands(axis, view.layout.modality, rows, columns)
    axes[0].set(ylabel="queries", xlabel="keys")
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.85, pad=0.01)
    figure.suptitle(title, fontsize=10)
    return figure


def _map(axis: Any, weights: Tensor) -> Any:
    from matplotlib.colors import LogNorm

    step = math.ceil(len(weights) / PIXELS)
    if step > 1:
        short = -len(weights) % step
        weights = torch.nn.functional.pad(weights, (0, short, 0, short))
        weights = torch.nn.functional.max_pool2d(weights[None, None], step)[0, 0]
    norm = LogNorm(vmin=FLOOR, vmax=1.0, clip=True)
    extent = (0, step * weights.shape[1], step * weights.shape[0], 0)
    return axis.imshow(
        weights.clamp(min=FLOOR).numpy(), norm=norm, cmap="magma", extent=extent, aspect="auto"
    )


def _bands(axis: Any, modality: Tensor, rows: Tensor, columns: Tensor) -> None:
    """Lines where the modality changes, for axes that are in pieces long enough to be told."""
    for order, line in ((rows, axis.axhline), (columns, axis.axvline)):
        edges = (modality[order].diff() != 0).nonzero()[:, 0]
        if len(edges) <= 4 * len(MODALITIES):
            for edge in edges.tolist():
                line(edge + 1, color="#56B4E9", linewidth=0.7, ls="--")


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
