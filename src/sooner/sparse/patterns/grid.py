"""Grid heads: lines that return with every frame, or with every row of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ...errors import SoonerError
from ..plane import Plane
from ..probe import LAST, Probe
from .base import Kind, Pattern, Spacing, check_count
from .static import NO_FRAMES, check_stride, frame_stride

AUTO: Literal["auto"] = "auto"
SINK = 8  # first keys get attention for being first, which says nothing about a stride
PEAKS = 16  # strides that are tried


@dataclass(frozen=True)
class Grid(Pattern):
    """Evenly spaced lines, whose stride and phase are searched in each input (algorithm 1, table
    3).

    Args:
        stride: `"auto"` looks for it; `"frame"` takes that of the video; or a number.
        phase: rank of the first line modulo the stride; `"auto"` looks for it.
        hline: queries of the phase's class see everything.
        vline: keys of the phase's class are seen by everything.
        slash: queries see keys of their own class.
        max_stride: longest stride that `"auto"` finds.
        sink: first keys that everybody sees besides. The paper's grid has none.
        local: nearest keys that everybody sees, at least the own one.
        last_q: queries of the estimate.
    """

    name: ClassVar[str] = "grid"
    kind: ClassVar[Kind] = "grid"
    dynamic: ClassVar[bool] = True
    stride: int | Literal["auto", "frame"] = AUTO
    phase: int | Literal["auto"] = AUTO
    hline: bool = True
    vline: bool = True
    slash: bool = True
    max_stride: int = 1024
    sink: int = 0
    local: int = 1
    last_q: int = LAST

    def __post_init__(self) -> None:
        check_stride(self, AUTO)
        check_count(self, "sink")
        check_count(self, "local", "last_q", minimum=1)
        check_count(self, "max_stride", minimum=2)
        if self.phase != AUTO:
            check_count(self, "phase")
        if not (self.hline or self.vline or self.slash):
            raise SoonerError("grid: hline, vline and slash are all False; it needs one of them")

    def spacing(self, plane: Plane, seen: Probe | None, place: int) -> Spacing:
        stride = self.stride if self.stride == AUTO else frame_stride(self.stride, plane)
        if seen is None and (stride == AUTO or self.phase == AUTO):
            raise SoonerError(
                "grid: an 'auto' stride or phase is taken from an input; give the queries and keys "
                "of a head, or numbers"
            )
        if stride == AUTO:
            assert seen is not None
            stride = self.find_stride(plane, seen, place)
        phase: int | Tensor = 0
        if self.phase != AUTO:
            phase = self.phase % stride
        elif seen is not None:
            phase = self._find_phase(seen, place, stride)
        lines = {"hline": self.hline, "vline": self.vline, "slash": self.slash}
        return Spacing(stride, phase, **lines, sink=self.sink, local=self.local)

    def find_stride(self, plane: Plane, seen: Probe, place: int) -> int:
        """Returns the stride whose lines hold most attention beyond what their number explains."""
        columns, distances = _profiles(seen, place)
        limit = min(self.max_stride, len(columns) // 2)
        known = {plane.period} if 1 < plane.period <= limit else set()
        tried = sorted(known | peaks(columns, limit) | peaks(distances, limit))
        if not tried:
            return max(min(plane.period or NO_FRAMES, limit), 1)
        gains = torch.stack([self._gain(columns, distances, stride) for stride in tried])
        return tried[int(gains.argmax())]

    @property
    def looks_along(self) -> tuple[bool, bool]:
        """Which profiles the stride is found in: weights by distance, and by key."""
        return self.slash, self.vline or not self.slash

    def _gain(self, columns: Tensor, distances: Tensor, stride: int) -> Tensor:
        gain = columns.new_zeros(())
        by_distance, by_key = self.looks_along
        if by_distance:
            gain = gain + excess(fold(distances, stride)[0], distances, stride)
        if by_key:
            gain = gain + excess(fold(columns, stride).max(), columns, stride)
        return gain

    def _find_phase(self, seen: Probe, place: int, stride: int) -> Tensor:
        if self.hline and not self.vline and len(seen.frontier) >= stride:
            # Horizontal lines are queries that look everywhere.
            spread = seen.spread[place] - seen.spread[place].mean()
            by_class = spread.new_zeros(stride).index_add(0, seen.frontier % stride, spread)
            return by_class.argmax()
        return fold(_profiles(seen, place)[0], stride).argmax()


def _profiles(seen: Probe, place: int) -> tuple[Tensor, Tensor]:
    """Returns attention weight by key without the sink, and by distance without the own key."""
    columns, distances = seen.vertical[place].clone(), seen.slash[place].clone()
    columns[:SINK] = 0
    # The last columns are the probing queries' own neighbourhood.
    columns[max(len(columns) - seen.queries, 0) :] = 0
    distances[0] = 0
    return columns, distances


def fold(profile: Tensor, stride: int) -> Tensor:
    """Returns the sum of a profile over each class modulo `stride`, `[stride]`."""
    short = -len(profile) % stride
    return torch.nn.functional.pad(profile, (0, short)).view(-1, stride).sum(0)


def excess(weight: Tensor, profile: Tensor, stride: int) -> Tensor:
    """Returns share of a profile's weight in one class, less the share that any class has.

    Largest at the true stride: half of it has the same lines among twice as many, and twice of it
    misses every other one.
    """
    return weight / profile.sum().clamp(min=1e-12) - 1 / stride


def peaks(profile: Tensor, limit: int) -> set[int]:
    """Returns lags from 2 to `limit` at which a profile resembles itself most."""
    if limit < 2:
        return set()
    centred = profile - profile.mean()
    spectrum = torch.fft.rfft(centred, n=2 * len(profile))
    alike = torch.fft.irfft(spectrum.abs() ** 2)[: limit + 1]
    return {lag + 2 for lag in alike[2:].topk(min(PEAKS, limit - 1)).indices.tolist()}
