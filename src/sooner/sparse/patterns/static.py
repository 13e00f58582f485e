"""Patterns that look the same for every input, and vertical-slash (MInference): the baselines."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import torch

from ...checks import check_whole
from ...errors import SoonerError
from ..plane import Plane
from ..probe import LAST, Probe
from .base import Kind, Lines, Pattern, Spacing, check_count, strongest

FIRST, NEAR = 4, 64

"""First keys and nearest distances that are seen in any case: sinks, and the last words."""

SHARE = 32

"""One in so many keys is a vertical line, and one in so many distances a slash line, of `sized`."""


@dataclass(frozen=True)
class VerticalSlash(Pattern):
    """The vertical and slash lines that hold most of the last queries' attention (appendix C.3).

    Args:
        vertical: keys that every later query sees.
        slash: distances; windows of 64 keys hold their lines as in MInference, see `windows`.
        last_q: queries of the estimate.
    """

    name: ClassVar[str] = "vertical-slash"
    kind: ClassVar[Kind] = "lines"
    dynamic: ClassVar[bool] = True
    vertical: int = 1000
    slash: int = 1024
    last_q: int = LAST

    def __post_init__(self) -> None:
        check_count(self, "vertical", "slash")
        check_count(self, "last_q", minimum=1)

    @classmethod
    def sized(cls, tokens: int) -> VerticalSlash:
        """Returns MInference's 1,000 and 1,024 lines from 32k tokens on, and in proportion below.

        Slash lines never become so few that none would be left beside the nearest ones.
        """
        lines = max(tokens // SHARE, 1)
        return cls(min(lines, cls.vertical), min(max(lines, 2 * NEAR), cls.slash))

    def lines(self, plane: Plane, seen: Probe | None, place: int) -> Lines:
        if seen is None:
            raise SoonerError(
                f"{self.name} takes its lines from an input; give the queries and keys of a head"
            )
        return Lines(
            strongest(seen.vertical[place], self.vertical, FIRST),
            strongest(seen.slash[place], self.slash, NEAR),
        )


logger = logging.getLogger("sooner")

FRAME: Literal["frame"] = "frame"

"""A stride of one video frame, whatever its length is in the input."""

NO_FRAMES = 64  # what stands for a frame where an input has none


@dataclass(frozen=True)
class Dense(Pattern):
    """Everything: the attention that the model was trained with."""

    name: ClassVar[str] = "dense"


@dataclass(frozen=True)
class AShape(Pattern):
    """A pattern that keeps the first tokens and the nearest ones (StreamingLLM, Xiao et al. 2024).

    Args:
        sink: first tokens.
        local: nearest tokens of the first query of each block of 64; the block sees its own.
    """

    name: ClassVar[str] = "a-shape"
    kind: ClassVar[Kind] = "lines"
    sink: int = 128
    local: int = 4096

    def __post_init__(self) -> None:
        check_count(self, "sink")
        check_count(self, "local", minimum=1)

    def lines(self, plane: Plane, seen: Probe | None, place: int) -> Lines:
        keys, device = len(plane.keys), plane.keys.device
        sink = torch.arange(min(self.sink, keys), device=device)
        return Lines(sink, torch.arange(min(self.local, keys), device=device))


@dataclass(frozen=True)
class TriShape(AShape):
    """An A-shape whose last queries can see everything (Li et al. 2025).

    Args:
        bottom: last queries, those that the answer is read from.
    """

    name: ClassVar[str] = "tri-shape"
    bottom: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "bottom")

    def lines(self, plane: Plane, seen: Probe | None, place: int) -> Lines:
        shape = super().lines(plane, seen, place)
        return Lines(shape.vertical, shape.slash, self.bottom)


@dataclass(frozen=True)
class StridedFixed(Pattern):
    """A pattern that keeps the query's segment, and the first token of every segment (Child et al.
    2019, fixed).

    Args:
        stride: tokens of a segment; `"frame"` for those of a video frame.
    """

    name: ClassVar[str] = "strided-fixed"
    kind: ClassVar[Kind] = "grid"
    stride: int | Literal["frame"] = FRAME

    def __post_init__(self) -> None:
        check_stride(self)

    def spacing(self, plane: Plane, seen: Probe | None, place: int) -> Spacing:
        stride = frame_stride(self.stride, plane)
        return Spacing(stride, plane.offset % stride, vline=True, segment=True)


@dataclass(frozen=True)
class Strided(Pattern):
    """A pattern that keeps the nearest tokens, and those at multiples of a stride (Child et al.
    2019, strided).

    Args:
        stride: tokens from line to line; `"frame"` for those of a video frame.
        local: nearest tokens; 0 for as many as the stride.
    """

    name: ClassVar[str] = "strided"
    kind: ClassVar[Kind] = "grid"
    stride: int | Literal["frame"] = FRAME
    local: int = 0

    def __post_init__(self) -> None:
        check_stride(self)
        check_count(self, "local")

    def spacing(self, plane: Plane, seen: Probe | None, place: int) -> Spacing:
        stride = frame_stride(self.stride, plane)
        return Spacing(stride, 0, slash=True, local=self.local or stride)


def frame_stride(stride: int | Literal["frame"], plane: Plane) -> int:
    """Returns the stride in ranks of this plane; says so once where its frames are of several
    sizes.
    """
    if stride != FRAME:
        return stride
    if len(plane.sizes) > 1:
        _emit(plane.sizes, plane.period)
    return plane.period or NO_FRAMES


@cache
def _emit(sizes: tuple[int, ...], period: int) -> None:
    """Once for each combination."""
    some = ", ".join(map(str, sizes[:3])) + (", ..." if len(sizes) > 3 else "")
    logger.warning(
        "video frames of %s tokens in one prompt: patterns by frame take a stride of %d, which "
        "fits one size alone; give videos of one frame size, or use Grid(stride='auto')",
        some,
        period,
    )


def check_stride(pattern: Any, *words: str) -> None:
    """Require `stride` to be a number or one of the words that stand for one.

    Raises:
        SoonerError: names the pattern and the value.
    """
    known = (FRAME, *words)
    if pattern.stride not in known:
        hint = f", or {' or '.join(map(repr, known))}"
        check_whole(f"{pattern.name}: stride", pattern.stride, hint=hint)
