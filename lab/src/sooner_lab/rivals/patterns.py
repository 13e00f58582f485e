"""Static patterns of sparse attention that MMInference is compared with (tables 1 and 2 of its
paper), sized for a share of the causal pairs."""

from __future__ import annotations

import math

import torch

from sooner.sparse.index import build
from sooner.sparse.pairs import Index, LineIndex
from sooner.sparse.patterns import AShape, Grid
from sooner.sparse.plane import Plane

SINK = BOTTOM = 128


def local_window(tokens: int, sink: int, budget: float) -> int:
    """Return the window with which an A-shape computes `budget` of the causal pairs.

    A window of `w` and a sink of `s` see `n(w + s) - (w + s)^2 / 2` of `n^2 / 2` pairs.
    """
    seen = tokens * (1 - math.sqrt(max(1 - budget, 0.0)))
    return max(int(seen) - sink, 1)


def a_shape(tokens: int, budget: float, bottom: int = 0) -> AShape:
    """Return the A-shape of a prompt and a share of its pairs; a tri-shape with a `bottom`."""
    sink = min(SINK, tokens // 16)
    local = local_window(tokens, sink, budget)
    return AShape(sink, local, min(bottom, tokens // 16))


def static_index(name: str, plane: Plane, budget: float) -> Index:
    """Return the index of one head that computes about a share of a plane's pairs.

    Segments of Sparse Transformers (Child et al. 2019) are video frames, or in text as long as the
    root of the length. `sf-fixed` sees its own segment and the first tokens of those before it;
    their number, which the budget buys, alternates where it is no whole one. `sf-strided` sees
    lines at a multiple of a segment, for half of the budget, and the nearest tokens.
    """
    keys = len(plane.keys)
    stride = plane.period or max(math.isqrt(keys), 1)
    if name == "sf-fixed":
        rank = torch.arange(keys, device=plane.keys.device)
        number, wanted = rank // stride, budget * stride
        columns = ((number + 1) * wanted).floor() - (number * wanted).floor()
        return LineIndex.build(plane, [rank[rank % stride < columns]], [rank[:0]], [0], stride)
    if name == "sf-strided":
        stride *= math.ceil(2 / (budget * stride))
        local = local_window(keys, 0, budget - 1 / stride)
        return build([Grid(stride, 0, hline=False, vline=False, local=local)], plane, None)
    return build([a_shape(keys, budget, BOTTOM * (name == "tri-shape"))], plane, None)
