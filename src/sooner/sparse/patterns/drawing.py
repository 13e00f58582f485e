"""Pictures of patterns: the real mask of an input, or a small sketch of what a pattern does.

matplotlib is needed here only, and imported when something is drawn.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import torch
from torch import Tensor

from ...errors import SoonerError
from ..modality import Layout
from ..pairs import LineIndex
from ..plane import Plane, whole
from ..probe import Probe
from . import HeadPattern
from .base import Pattern, build
from .boundary import Boundary
from .static import strongest

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

SKETCH_BLOCK = 4
"""Side of the blocks of a sketch, whose prompt is a few hundred tokens long."""


def check_matplotlib() -> None:
    """Refuse to draw without it.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise SoonerError(
            "drawing needs matplotlib, which is not installed; pip install 'sooner[plots]'"
        )


def draw(
    pattern: HeadPattern,
    layout: Layout,
    axes: Any = None,
    queries: Tensor | None = None,
    keys: Tensor | None = None,
) -> Any:
    """Draw which keys each query sees, causal pairs that are left out in light grey.

    Args:
        axes: matplotlib's; by default those of a new figure.
        queries, keys: one head's states, `[tokens, head_dim]`; without them, a dynamic pattern is
            sketched: as many lines as it has, at places made up.

    Returns:
        The axes.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    check_matplotlib()
    if axes is None:
        from matplotlib.figure import Figure

        axes = Figure(figsize=(4, 4), layout="constrained").add_subplot()
    is_real = queries is not None or not is_dynamic(pattern)
    seen = pattern.mask(layout, queries, keys) if is_real else sketch(pattern, layout)
    axes.imshow(tile(seen, pattern.name, layout).numpy(), interpolation="antialiased")
    axes.set(title=pattern.name, xlabel="keys", ylabel="queries", xticks=[], yticks=[])
    return axes


def is_dynamic(pattern: HeadPattern) -> bool:
    """Whether its lines depend on the input."""
    if isinstance(pattern, Boundary):
        return any(inner.dynamic for inner in pattern.inner.values())
    return pattern.dynamic


def tile(seen: Tensor, name: str, layout: Layout) -> Tensor:
    """A picture `[queries, keys, 3]` of a mask in its pattern's colour.

    Pairs that are left out are light grey, and bounds of modalities thin lines.
    """
    from matplotlib.colors import to_rgb

    grey, line, colour = (torch.tensor(to_rgb(c)) for c in ("#EEEEEE", "#BBBBBB", COLOURS[name]))
    picture = torch.ones(*seen.shape, 3)
    picture[torch.ones_like(seen).tril()] = grey
    edges = (layout.modality.diff() != 0).nonzero()[:, 0]
    picture[edges] = line
    picture[:, edges] = line
    picture[seen] = colour
    picture[[0, -1]] = colour
    picture[:, [0, -1]] = colour
    return picture


def sketch(pattern: HeadPattern, layout: Layout, scale: float = 1.0) -> Tensor:
    """The mask of a pattern on a short prompt, `[tokens, tokens]` bool.

    Args:
        scale: the prompt's length as a share of that for which the pattern's sizes are.
    """
    tokens = len(layout)
    full = torch.zeros(tokens, tokens, dtype=torch.bool)
    parts: list[tuple[Plane, Pattern]] = []
    if isinstance(pattern, Boundary):
        parts = [(pattern.plane(layout, region), p) for region, p in pattern.parts(layout)]
    else:
        parts = [(whole(layout), pattern)]
    for plane, inner in parts:
        if len(plane.queries) and len(plane.keys):
            full[plane.queries[:, None], plane.keys] = _inside(smaller(inner, scale), plane)
    return full


def smaller(pattern: Pattern, scale: float) -> Pattern:
    """The pattern with its sizes for a prompt of another length; strides stay."""
    names = ("sink", "local", "bottom", "vertical", "slash")
    sizes = {
        field.name: max(round(getattr(pattern, field.name) * scale), 1)
        for field in dataclasses.fields(pattern)
        if field.name in names and type(getattr(pattern, field.name)) is int
        if getattr(pattern, field.name) > 1
    }
    return dataclasses.replace(pattern, **sizes)


def _inside(pattern: Pattern, plane: Plane) -> Tensor:
    """What a plane's queries see, `[queries, keys]`."""
    rank = torch.arange(len(plane.keys))
    if pattern.kind == "dense":
        return rank <= plane.frontier[:, None]
    seen = made_up(plane)
    if pattern.kind == "grid":
        return build([pattern], plane, seen).seen(0, plane)
    drawn = pattern.lines(plane, seen, 0)
    vertical, slash = drawn.vertical, drawn.slash
    if pattern.dynamic:  # a sketch has no room for all that are there in any case
        options = pattern.to_dict()
        vertical = strongest(seen.vertical[0], options["vertical"], 1)
        slash = strongest(seen.slash[0], options["slash"], SKETCH_BLOCK)
    index = LineIndex.build(plane, [vertical], [slash], [drawn.bottom], SKETCH_BLOCK)
    return index.seen(0, plane)


def made_up(plane: Plane) -> Probe:
    """An estimate in which lines fall anywhere, the same every time, and grids on frames."""
    count = len(plane.keys)
    rank = torch.arange(count)
    spots = ((rank * 0.6180339887498949) % 1).double()  # far from neighbours in value
    period = plane.period or min(16, max(count // 4, 2))
    lines = (rank % period == plane.offset % period).double()
    vertical = (2 * lines + spots)[None]
    slash = (2 * (rank % period == 0).double() + spots.flip(0))[None]
    flat = torch.ones(1, 1, dtype=torch.double)
    return Probe(1, vertical, slash, flat, flat, plane.frontier[-1:])
