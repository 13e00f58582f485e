"""Static patterns of sparse attention that MMInference is compared with (table 2 of its paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sooner.checks import option
from sooner.sparse.patterns import FRAME, Pattern, Spacing, frame_stride
from sooner.sparse.plane import Plane
from sooner.sparse.probe import Kind


@dataclass(frozen=True)
class Strided(Pattern):
    """Keeps the nearest tokens, and those at multiples of a stride (Child et al. 2019, strided).

    Args:
        stride: tokens from line to line; `"frame"` for those of a video frame.
        local: nearest tokens; 0 for as many as the stride.
    """

    name: ClassVar[str] = "strided"
    kind: ClassVar[Kind] = "grid"
    stride: int | Literal["frame"] = option(FRAME, 1)
    local: int = option(0, 0)

    def spacing(self, plane: Plane) -> Spacing:
        stride = frame_stride(self.stride, plane)
        return Spacing(stride, 0, slash=True, local=self.local or stride)
