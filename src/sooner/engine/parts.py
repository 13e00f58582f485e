"""Work on a block's scores a few entries at a time, so that what it takes beside them is small."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

MAX_NUMBERS = 1 << 22
"""Numbers of a part: 27 entries of a vocabulary of 152,000. A sort of them takes 48 MiB."""


def by_entries(function: Callable[..., Tensor], scores: Tensor, *extra: Tensor) -> Tensor:
    """`function(scores, *others)`, for so many entries at once that few numbers are under way.

    How many parts there are depends on shapes alone. The result is that of the whole block, to the
    bit, as long as the function treats each entry for itself.

    Args:
        function: gives `[..., entries, any]` for parts of its arguments.
        scores: `[..., entries, vocab]`.
        extra: as many entries each, in the axis before the last.
    """
    if scores.dim() < 2 or scores.numel() <= MAX_NUMBERS:
        return function(scores, *extra)
    entries = scores.shape[-2]
    size = max(MAX_NUMBERS // (scores.numel() // entries), 1)
    if size >= entries:
        return function(scores, *extra)
    result: Tensor | None = None
    for start in range(0, entries, size):
        count = min(size, entries - start)
        part = function(*(tensor.narrow(-2, start, count) for tensor in (scores, *extra)))
        if result is None:
            result = part.new_empty(*part.shape[:-2], entries, part.shape[-1])
        result.narrow(-2, start, count).copy_(part)
    assert result is not None
    return result
