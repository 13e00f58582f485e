"""The patterns of the arms, sized for a prompt."""

from __future__ import annotations

from sooner.sparse.patterns import (
    BlockTopP,
    Dense,
    Grid,
    HeadPattern,
    TwoDBoundary,
    VerticalSlash,
)

from ...rivals.patterns import BOTTOM, a_shape


def pattern(name: str, tokens: int, budget: float) -> HeadPattern:
    """What every head of an arm runs on a prompt of `tokens` (table 2 of MMInference).

    `planted` is the structure that the made-up states of the one layer have; `ours`, which is
    searched, has no one pattern.

    Args:
        budget: share of the causal pairs for the arms with a free local window, a-shape and
            tri-shape; the paper sizes theirs to match its own FLOPs.
    """
    made: dict[str, HeadPattern] = {
        "dense": Dense(),
        "a-shape": a_shape(tokens, budget),
        "tri-shape": a_shape(tokens, budget, BOTTOM),
        "vertical-slash": VerticalSlash.sized(tokens),
        "block-top-p": BlockTopP(),
        "grid": Grid("frame"),
        "planted": TwoDBoundary({"video:video": Grid("frame")}),
    }
    return made[name]
