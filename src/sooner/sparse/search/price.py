"""What patterns cost on the device at hand: pairs of one kind may take longer than of another."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...models import Adapter
from ..attention import States
from ..attention.run import backend_for
from ..cost import Costs, Shape, measure
from ..modality import Layout
from ..patterns import Dense, HeadPattern, Pattern
from ..table import Head

SHORTEST, LONGEST = 1024, 8192
"""Lengths in tokens between which break-even is looked for; longer where a sample is."""

MARGIN = 32  # words around the video of a prompt that is timed


def prices(candidates: Sequence[Pattern], states: States, layout: Layout) -> Tensor:
    """Time over FLOPs of each candidate, both relative to dense attention, `[candidates]` fp64.

    A price of 1 is a kernel whose pairs cost what dense attention's do. Times are those of all
    heads on real states, the estimate of the lines inside.
    """
    heads, backend = states.queries.shape[0], backend_for(states.queries.device)
    found = []
    for pattern in candidates:
        if isinstance(pattern, Dense):
            found.append(1.0)
            continue
        cost = measure([pattern] * heads, states, layout, backend)
        found.append(cost.relative / max(cost.flops, 1e-9))
    return torch.tensor(found, dtype=torch.double)


def break_even(
    adapter: Adapter, layers: Sequence[Sequence[Head]], layout: Layout
) -> tuple[int, str]:
    """The prompt length from which a typical layer's patterns are faster than dense attention.

    Typical is the layer of median cost among those with a sparse head. Timed on random states of
    a prompt like the sample: a video between words.

    Returns:
        Tokens, and how they were found; 0 where no head is sparse.
    """
    sparse = [
        layer for layer in layers if any(not isinstance(head.pattern, Dense) for head in layer)
    ]
    if not sparse:
        return 0, "no head is sparse"
    ranked = sorted(sparse, key=lambda layer: sum(head.cost or 0.0 for head in layer))
    patterns: list[HeadPattern] = [head.pattern for head in ranked[len(ranked) // 2]]
    frame = int((layout.frames == 0).sum())
    longest = max(LONGEST, len(layout))
    backend = backend_for(adapter.device)

    def timed(tokens: int) -> Layout:
        if not frame:
            return Layout.text(tokens)
        return Layout.spans(
            ("text", MARGIN), ("video", tokens - 2 * MARGIN), ("text", MARGIN), frame=frame
        )

    costs = Costs(shape(adapter), backend, timed, repeats=2)
    found = costs.break_even(patterns, SHORTEST, longest)
    if found is None:
        return longest + 1, f"not faster at {longest} tokens, backend {backend.name}"
    return found, f"measured on one layer, backend {backend.name}"


def shape(adapter: Adapter) -> Shape:
    """Of the model's attention layers."""
    config = adapter.text_config
    heads = int(config.num_attention_heads)
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    keys = getattr(config, "num_key_value_heads", None) or heads
    return Shape(heads, keys, size, adapter.dtype, str(adapter.device))
