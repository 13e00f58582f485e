"""Patterns for a model that nobody has searched, and the length from which they are faster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from ...models import Adapter
from ..attention import Backend
from ..attention.choose import backend_for
from ..cost import Costs, Shape
from ..fingerprint import heads
from ..modality import MODALITIES, Layout
from ..patterns import HeadPattern, QBoundary, VerticalSlash
from ..table import PatternTable

LEAST, MOST = 1024, 8192
"""Lengths in tokens: below the first nothing is gained; beyond the second nothing is timed."""
WORDS = 32  # around the video of a prompt that is timed


def auto_table(adapter: Adapter) -> PatternTable:
    """One pattern for all heads, by what the model sees."""
    return PatternTable.uniform(adapter, auto_pattern(adapter))


def auto_pattern(adapter: Adapter) -> HeadPattern:
    """Vertical and slash lines, for the queries of each modality their own.

    They fit any head, if none as well as a search would: of a miniature's attention over 3084
    tokens half of the pairs hold 75 % so, and lines by frame with a fifth of them 30 %.
    """
    lines = VerticalSlash()
    return QBoundary(dict.fromkeys(MODALITIES, lines)) if adapter.visual_ids else lines


def auto_below(adapter: Adapter, layouts: Sequence[Layout], backend: Backend) -> int:
    """Tokens below which this device's dense attention is faster than `auto_pattern`'s.

    Timed on random states, once for each power of two below a prompt's length.

    Args:
        layouts: of the prompts that wait, whose frames are those of the one that is timed.
    """
    longest = max(len(layout.where()) for layout in layouts)
    if longest < LEAST:
        return LEAST
    frame = max(int((layout.frames == 0).sum()) for layout in layouts)
    length = min(1 << (longest.bit_length() - 1), MOST)
    found = _break_even(_shape(adapter), auto_pattern(adapter), backend.name, frame, length)
    return longest + 1 if found is None else found


def _shape(adapter: Adapter) -> Shape:
    config = adapter.text_config
    count = heads(adapter)
    width = getattr(config, "head_dim", None) or config.hidden_size // count
    keys = getattr(config, "num_key_value_heads", None) or count
    return Shape(count, keys, width, adapter.dtype, str(adapter.device))


@cache
def _break_even(
    shape: Shape, pattern: HeadPattern, backend: str, frame: int, longest: int
) -> int | None:
    """A property of the machine, so it is asked once."""

    def layout(tokens: int) -> Layout:
        if not frame:
            return Layout.text(tokens)
        video = ("video", tokens - 2 * WORDS)
        return Layout.spans(("text", WORDS), video, ("text", WORDS), frame=frame)

    costs = Costs(shape, backend_for(torch.device(shape.device), backend), layout, repeats=1)
    return costs.break_even(pattern, LEAST, longest)
