"""Rows of states by slot: views where the slots have no gap, copies elsewhere."""

from __future__ import annotations

from torch import Tensor


def span(slots: Tensor) -> slice | None:
    """Ascending slots as a slice, if there is no gap among them."""
    if not len(slots):
        return slice(0, 0)
    first, last = int(slots[0]), int(slots[-1])
    return slice(first, last + 1) if last - first + 1 == len(slots) else None


def pick(states: Tensor, slots: Tensor) -> Tensor:
    """Some rows of `[..., tokens, head_dim]`, given by ascending slots."""
    which = span(slots)
    return states.index_select(-2, slots) if which is None else states[..., which, :]
