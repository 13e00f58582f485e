"""2D-boundary attention in plain torch: queries, keys and values gathered (algorithm 7)."""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention.partial import Partial, States
from ...plane import Plane
from ..q_boundary.reference import Op, q_boundary


def two_d_boundary(states: States, plane: Plane, heads: Tensor, into: Partial, op: Op) -> None:
    """Permute keys and values, then go on as with a query boundary.

    Args:
        op: as in `q_boundary`; gets a plane whose queries and keys are `0, 1, ...`.
    """
    gathered = States(
        states.queries, states.keys[:, plane.keys], states.values[:, plane.keys], states.scale
    )  # keys: [kv_heads, keys, head_dim]
    ranks = torch.arange(len(plane.keys), device=plane.keys.device)
    inner = Plane(plane.queries, ranks, plane.frontier, plane.period, plane.offset)
    q_boundary(gathered, inner, heads, into, op)
