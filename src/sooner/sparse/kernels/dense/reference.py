"""Dense causal attention over a plane in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention.partial import Partial, States
from ...plane import Plane


def dense(
    states: States, plane: Plane, heads: Tensor, into: Partial, first: Tensor | None = None
) -> None:
    """All causal pairs; see `kernels.dense.triton.dense` for the arguments."""
    ranks = torch.arange(len(plane.keys), device=plane.keys.device)
    places = torch.arange(len(plane.queries), device=plane.keys.device)
    for number, head in enumerate(heads.tolist()):
        live = places >= (0 if first is None else first[number])
        seen = (ranks <= plane.frontier[:, None]) & live[:, None]
        attend(states, head, plane.queries, plane.keys, seen, into)


def attend(
    states: States, head: int, queries: Tensor, keys: Tensor, seen: Tensor, into: Partial
) -> None:
    """Softmax attention of some slots on some slots under a mask, merged into `into`.

    Args:
        head: of the queries.
        queries, keys: slots, `[queries]`, `[keys]`.
        seen: `[queries, keys]` bool.
    """
    asked = states.queries[head, queries].float()  # [queries, head_dim]
    known = states.keys[head // states.group, keys].float()
    scores = (asked @ known.T * states.scale).masked_fill(~seen, -torch.inf)
    mass = scores.logsumexp(1)  # [queries]
    weights = (scores - mass[:, None]).exp().nan_to_num(0.0)
    output = weights @ states.values[head // states.group, keys].float()
    one = torch.tensor([head], device=queries.device)
    into.add(one, queries, output[None], mass[None])
