"""Attention states whose heads have a known pattern, to see whether a search finds it again.

Scores are sums of terms, each an inner product of a few features of query and key: a vertical line
is a feature of some keys; a slash line at distance `d` is a set of waves, in phase at `d` and out
of phase elsewhere; a grid's slash lines are waves whose periods divide the stride. Features can be
gated by modality, which plants boundaries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sooner.errors import unknown
from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.plane import Plane, by_pair, by_query, whole

PEAK = 10.0
"""Score of a key on a line, in nats, where others have about 0."""

WAVES, NOISY = 20, 16
VERTICALS = 8
SLASH_EVERY = 1024
"""Keys for each slash line besides that of the own key. A line is computed in blocks of 64, two of
them side by side, so that a few lines already fill a short prompt and no budget would hold them."""
WIDTH = 128


@dataclass
class _Head:
    """One head's features as they are collected."""

    layout: PromptLayout
    generator: torch.Generator
    queries: list[Tensor] = field(default_factory=list)
    keys: list[Tensor] = field(default_factory=list)

    def add(self, plane: Plane, query: Tensor, key: Tensor) -> None:
        """Features `[plane's queries, f]` and `[plane's keys, f]`, nothing outside the plane."""
        for slots, feature, into in (
            (plane.queries, query, self.queries),
            (plane.keys, key, self.keys),
        ):
            full = torch.zeros(len(self.layout), feature.shape[1])
            full[slots] = feature
            into.append(full)

    def draw(self, count: int, high: int, low: int = 0) -> Tensor:
        """`count` different numbers from `low` to `high`."""
        return low + torch.randperm(max(high - low, 1), generator=self.generator)[:count]

    def verticals(self, plane: Plane) -> None:
        """Some keys that all of the plane's queries look at, most of them early ones."""
        marked = torch.zeros(len(plane.keys), 1)
        marked[self.draw(VERTICALS, len(plane.keys) * 2 // 3)] = PEAK
        self.add(plane, torch.ones(len(plane.queries), 1), marked)

    def slashes(self, plane: Plane) -> None:
        """Some distances at which all of the plane's queries look, the own key among them."""
        far = max(len(plane.keys) // SLASH_EVERY, 1)
        apart = torch.cat([torch.zeros(1, dtype=torch.long), self.draw(far, len(plane.keys) // 2)])
        rate = torch.rand(WAVES, generator=self.generator) * 3.1
        key = sum(_waves(torch.arange(len(plane.keys)) + d, rate) for d in apart.tolist())
        assert isinstance(key, Tensor)
        self.add(plane, _waves(plane.frontier, rate), key * (PEAK / WAVES))

    def grid(self, plane: Plane, stride: int) -> None:
        """Slash lines and a vertical line that return with a stride, and queries that see all."""
        harmonic = 1 + self.draw(WAVES, stride - 1) if stride > WAVES else torch.arange(1, stride)
        rate = 2 * torch.pi * harmonic / stride
        phase = int(self.draw(1, stride)[0])
        rank = torch.arange(len(plane.keys))
        # A query of the lines' class spreads its attention evenly: a horizontal line.
        looks = (plane.frontier % stride != phase).float()[:, None]
        wave = PEAK / len(rate)
        self.add(plane, _waves(plane.frontier, rate) * looks, _waves(rank, rate) * wave)
        self.add(plane, looks, (rank % stride == phase).float()[:, None] * PEAK)

    def noise(self, level: float) -> None:
        """Scores of standard deviation `level` on top, for every pair."""
        shape = (len(self.layout), NOISY)
        self.queries.append(torch.randn(shape, generator=self.generator))
        self.keys.append(torch.randn(shape, generator=self.generator) * level / NOISY**0.5)


def _waves(place: Tensor, rate: Tensor) -> Tensor:
    """Waves at places, `[places, 2 * rates]`: their inner products depend on distances only."""
    angle = place[:, None].double() * rate.double()
    return torch.cat([angle.cos(), angle.sin()], 1).float()


def _grid(head: _Head, stride: int) -> None:
    head.grid(whole(head.layout), stride)


def _vertical_slash(head: _Head, stride: int) -> None:
    head.verticals(whole(head.layout))
    head.slashes(whole(head.layout))


def _q_boundary(head: _Head, stride: int) -> None:
    """Frames look along a grid, words along verticals and slashes; both at everything."""
    head.grid(by_query(head.layout, "video"), stride)
    head.verticals(by_query(head.layout, "text"))
    head.slashes(by_query(head.layout, "text"))


def _two_d_boundary(head: _Head, stride: int) -> None:
    """As above, but lines are those of a pair of modalities and go on behind an interruption."""
    head.grid(by_pair(head.layout, "video", "video"), stride)
    head.verticals(by_pair(head.layout, "video", "text"))
    head.verticals(by_pair(head.layout, "text", "video"))
    head.slashes(by_pair(head.layout, "text", "text"))


KINDS: dict[str, Callable[[_Head, int], None]] = {
    "grid": _grid,
    "vertical-slash": _vertical_slash,
    "q-boundary": _q_boundary,
    "2d-boundary": _two_d_boundary,
}
"""What can be planted, by the name of the pattern that is to be found."""


def planted(
    kind: str, layout: PromptLayout, heads: int, noise: float, seed: int, stride: int | None = None
) -> States:
    """States of heads that have a pattern.

    Args:
        kind: one of `KINDS`; boundaries need a layout with text and video.
        noise: standard deviation of the scores' noise in nats; lines are `PEAK` high.
        stride: of grids; by default drawn anew for each head, 17 to 64.

    Returns:
        As many key heads as query heads, values at random, a scale of 1.

    Raises:
        SoonerError: an unknown kind.
    """
    if kind not in KINDS:
        raise unknown("planted pattern", kind, KINDS)
    generator = torch.Generator().manual_seed(seed)
    queries: list[Tensor] = []
    keys: list[Tensor] = []
    for _ in range(heads):
        head = _Head(layout, generator)
        drawn = int(torch.randint(17, 65, (1,), generator=generator))
        KINDS[kind](head, stride or drawn)
        head.noise(noise)
        for parts, into in ((head.queries, queries), (head.keys, keys)):
            features = torch.cat(parts, 1)
            pad = WIDTH - features.shape[1]
            into.append(torch.nn.functional.pad(features, (0, pad)))
    values = torch.randn(heads, len(layout), WIDTH, generator=generator)
    return States(torch.stack(queries), torch.stack(keys), values, 1.0)


def mixed_layout(tokens: int, frame: int = 24, seed: int = 0) -> PromptLayout:
    """A video that documents interrupt: a quarter of the tokens is text, as in MM-NIAH.

    Args:
        tokens: about how many.
        frame: tokens of a frame.
    """
    generator = torch.Generator().manual_seed(seed)
    spans: list[tuple[str, int]] = [("text", 16)]
    while sum(count for _, count in spans) < tokens - 64:
        frames = int(torch.randint(3, 9, (1,), generator=generator))
        words = frames * frame // 3 + int(torch.randint(-9, 10, (1,), generator=generator))
        spans += [("video", frames * frame), ("text", max(words, 5))]
    return PromptLayout.spans(*spans, ("text", 64), frame=frame)
