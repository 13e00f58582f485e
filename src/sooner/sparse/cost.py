"""What sparse attention costs, measured on the device at hand against torch's dense attention."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

import torch
from torch import Tensor

from .attention import Backend, States, sparse_attention
from .attention.run import jobs
from .modality import PromptLayout
from .patterns import HeadPattern

T = TypeVar("T")

CLOSE = 1.125  # a break-even length is known when it is between two whose ratio is this
STEP = 64  # tokens; lengths are multiples of it


def random_states(
    tokens: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> States:
    """Returns standard normal states.

    Their attention has no lines, so patterns that look for some find them anywhere: slash lines
    of a vertical-slash head then spread over more blocks than in a trained model.
    """
    generator = torch.Generator(device).manual_seed(0)
    queries, keys, values = (
        torch.randn(count, tokens, head_dim, generator=generator, device=device).to(dtype)
        for count in (heads, kv_heads, kv_heads)
    )
    return States(queries, keys, values, head_dim**-0.5)


@dataclass(frozen=True)
class Cost:
    """What one layer costs over one prompt.

    Attributes:
        seconds: sparse attention, the estimate of its lines inside; median.
        dense: causal attention by torch over the same states; median.
        flops: share of the dense FLOPs, counted, the estimate of the lines inside.
    """

    seconds: float
    dense: float
    flops: float

    @property
    def relative(self) -> float:
        """Time relative to dense attention; below 1 is faster."""
        return self.seconds / self.dense


def measure(
    patterns: Sequence[HeadPattern],
    states: States,
    layout: PromptLayout,
    backend: Backend,
    repeats: int = 3,
) -> Cost:
    """Time both ways, in turns after a warm-up, the device synchronised.

    Args:
        patterns: one for each query head.
        states: of one row, `[heads, tokens, head_dim]`.
        layout: of its tokens; dense attention takes padding for tokens.
        repeats: runs of each, of which the median counts.
    """
    arms: tuple[Callable[[], Any], ...] = (
        lambda: sparse_attention(states, layout, patterns, backend),
        lambda: dense(states),
    )
    device = states.queries.device
    timed = [[clock(arm, device)[0] for arm in arms] for _ in range(repeats + 1)][1:]
    seconds, whole = (median(column) for column in zip(*timed, strict=True))
    return Cost(seconds, whole, flops(patterns, states, layout))


def dense(states: States) -> Tensor:
    """Returns what a model runs without sparse attention, `[heads, tokens, head_dim]`."""
    return torch.nn.functional.scaled_dot_product_attention(
        states.queries[None],
        states.keys[None],
        states.values[None],
        is_causal=True,
        scale=states.scale,
        enable_gqa=states.group > 1,
    )[0]


def flops(patterns: Sequence[HeadPattern], states: States, layout: PromptLayout) -> float:
    """Returns the share of causal attention's FLOPs, counted from the indices.

    Scores and values cost the same, so looking at the last queries costs half of their pairs.
    """
    tokens = len(layout.where())
    total = 0.0
    for job in jobs(states, layout, patterns):
        total += float(job.pairs.sum()) + len(job.heads) * job.last * len(job.plane.keys) / 2
    return total / (max(tokens * (tokens + 1) // 2, 1) * len(patterns))


def clock(run: Callable[[], T], device: torch.device) -> tuple[float, T]:
    """Returns seconds and result of one call, the device synchronised before and after."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    result = run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start, result


def break_even(
    relative: Callable[[int], float], shortest: int = 256, longest: int = 32768
) -> int | None:
    """Returns the shortest prompt, in tokens, over which patterns are faster than dense attention.

    Doubles the length until they are, then halves the interval until its ends are within an
    eighth of each other. `None` if they are not at `longest` either.

    Args:
        relative: their time over a prompt of so many tokens, relative to dense attention.
    """
    slow, fast = 0, shortest
    while relative(fast) >= 1:
        if fast >= longest:
            return None
        slow, fast = fast, min(2 * fast, longest)
    while slow and fast > CLOSE * slow and fast - slow > STEP:
        middle = (slow + fast) // 2 // STEP * STEP
        if relative(middle) < 1:
            fast = middle
        else:
            slow = middle
    return fast
