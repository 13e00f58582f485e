"""Sparse attention by its definition: all scores, and a mask. Slow, on any device, and right."""

from __future__ import annotations

import torch
from torch import Tensor

from ..pairs import Index, causal
from ..plane import Plane
from .partial import Partial, States

ROWS = 1024  # queries at a time, so that memory grows with the keys only


class Reference:
    """The backend that the others are held against."""

    name = "reference"

    def attend(
        self, states: States, plane: Plane, index: Index | None, heads: Tensor, into: Partial
    ) -> None:
        """Attends to the plane's pairs."""
        for place, head in enumerate(heads.tolist()):
            keys = states.keys[head // states.group, plane.keys].float()
            values = states.values[head // states.group, plane.keys].float()
            for start in range(0, len(plane.queries), ROWS):
                part = slice(start, start + ROWS)
                slots = plane.queries[part]
                scores = states.queries[head, slots].float() @ keys.T * states.scale
                scores = scores.masked_fill(~_seen(index, place, plane, part), -torch.inf)
                lse = scores.logsumexp(1)  # [queries]
                weights = (scores - lse[:, None]).exp().nan_to_num(0.0)
                into.add(heads[place : place + 1], slots, (weights @ values)[None], lse[None])


def _seen(index: Index | None, place: int, plane: Plane, part: slice) -> Tensor:
    return causal(plane, part)[2] if index is None else index.seen(place, plane, part)
