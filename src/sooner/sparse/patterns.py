"""The patterns of sparse attention by name, and boundaries, which hold one for each modality.

A pattern of one plane is a frozen dataclass that says which lines an index takes from an estimate,
static ones and those of MInference, or which grid, one that returns with frames, or which blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from ..checks import check_choice, check_fields, check_keys, option
from ..errors import SoonerError
from .modality import MODALITIES, PromptLayout
from .plane import Plane
from .probe import FIRST, LAST, NEAR, Kind

logger = logging.getLogger("sooner")


class Lines(NamedTuple):
    """What one head takes into a `LineIndex`.

    Attributes:
        first, near: keys and distances that are there in any case, from 0 on.
        vertical, slash: how many there are with those that hold most in the estimate.
        bottom: last queries that see everything.
    """

    first: int
    near: int
    vertical: int = 0
    slash: int = 0
    bottom: int = 0


class Spacing(NamedTuple):
    """What one head takes into a `GridIndex`.

    Attributes:
        stride, phase: numbers; a stride of 0 and a phase of -1 are taken from the estimate.
        limit: longest stride that is looked for.
        by_key, by_distance: in which sums the stride is looked for.
        is_even: whether the share that any class has counts against a stride.
        is_spread: whether a phase is where queries look everywhere, if there are enough of them.
    """

    stride: int
    phase: int
    hline: bool = False
    vline: bool = False
    slash: bool = False
    sink: int = 0
    local: int = 1
    limit: int = 0
    by_key: bool = True
    by_distance: bool = False
    is_even: bool = True
    is_spread: bool = False

    @property
    def has_classes(self) -> bool:
        """Whether it has lines for which queries are sorted by class."""
        return self.hline or self.slash

    @property
    def has_band(self) -> bool:
        """Whether a query may see keys that no class has counted."""
        return not self.slash or self.sink > 0 or self.local > 1

    @property
    def columns(self) -> tuple[int, ...]:
        """Returns the entries of a `GridIndex`."""
        return self[:7]

    @property
    def rules(self) -> tuple[int, ...]:
        """Returns what strides and phases are chosen by."""
        return self.phase, self.by_key, self.by_distance, self.is_even, self.is_spread


class Blocks(NamedTuple):
    """What one head takes into a `BlockIndex`.

    Attributes:
        size: ranks of a block.
        rows: queries of each block that are in the estimate.
        sink: first blocks that are there in any case.
        slack: share of the estimate that may be missing.
        floor: share of the estimate that a block holds at least.
        bottom: last ranks of the plane; blocks of queries among them see all blocks.
    """

    size: int
    rows: int
    sink: int
    slack: float
    floor: float
    bottom: int


@dataclass(frozen=True)
class Pattern:
    """Which keys a head sees inside a plane; the mode is *approximate*, save for `Dense`.

    Attributes:
        name: as it stands in pattern files and on the command line.
        kind: which kernel runs it.
    """

    name: ClassVar[str] = ""
    kind: ClassVar[Kind] = "dense"

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}: ")

    @property
    def dynamic(self) -> bool:
        """Whether it needs a look at the last queries of every input."""
        return False

    def lines(self, plane: Plane) -> Lines:
        """Returns what one head takes, for patterns of kind `lines`."""
        raise NotImplementedError

    def spacing(self, plane: Plane) -> Spacing:
        """Returns what one head takes, for patterns of kind `grid`."""
        raise NotImplementedError

    def blocks(self) -> Blocks:
        """Returns what one head takes, for patterns of kind `blocks`."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for a pattern file."""
        return {"pattern": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}

    def __str__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{self.name}({values})"


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
    vertical: int = option(1000, 0)
    slash: int = option(1024, 0)
    last_q: int = option(LAST, 1)

    @classmethod
    def sized(cls, tokens: int) -> VerticalSlash:
        """Returns MInference's 1,000 and 1,024 lines from 32k tokens on, and in proportion below.

        Slash lines never become so few that none would be left beside the nearest ones.
        """
        lines = max(tokens // SHARE, 1)
        return cls(min(lines, cls.vertical), min(max(lines, 2 * NEAR), cls.slash))

    @property
    def dynamic(self) -> bool:
        return True

    def lines(self, plane: Plane) -> Lines:
        keys = len(plane.keys)
        sizes = FIRST, NEAR, max(self.vertical, FIRST), max(self.slash, NEAR)
        return Lines(*(min(size, keys) for size in sizes))


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
        bottom: last queries that see everything, as in the tri-shape of Li et al. 2025.
    """

    name: ClassVar[str] = "a-shape"
    kind: ClassVar[Kind] = "lines"
    sink: int = option(128, 0)
    local: int = option(4096, 1)
    bottom: int = option(0, 0)

    def lines(self, plane: Plane) -> Lines:
        keys, bottom = len(plane.keys), max(self.bottom - plane.later, 0)
        return Lines(min(self.sink, keys), min(self.local, keys), bottom=bottom)


def frame_stride(stride: int | Literal["frame"], plane: Plane) -> int:
    """Returns the stride in ranks of this plane; warns once where frames are of several sizes."""
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


AUTO: Literal["auto"] = "auto"
RULES = ("excess", "sum")


@dataclass(frozen=True)
class Grid(Pattern):
    """Evenly spaced lines, whose stride and phase are found in each input (algorithm 1, table 3).

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
        rule: what the best stride has most of in one class: attention beyond what the number of its
            lines explains (`excess`), or attention (`sum`, as in algorithm 1, which suits strides
            that are about as long as each other: short ones have more lines).
    """

    name: ClassVar[str] = "grid"
    kind: ClassVar[Kind] = "grid"
    stride: int | Literal["auto", "frame"] = option(AUTO, 1)
    phase: int | Literal["auto"] = option(AUTO, 0)
    hline: bool = True
    vline: bool = True
    slash: bool = True
    max_stride: int = option(1024, 2)
    sink: int = option(0, 0)
    local: int = option(1, 1)
    last_q: int = option(LAST, 1)
    rule: Literal["excess", "sum"] = option("excess", known=RULES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.hline or self.vline or self.slash):
            raise SoonerError("grid: hline, vline and slash are all False; it needs one of them")

    @property
    def dynamic(self) -> bool:
        return AUTO in (self.stride, self.phase)

    def spacing(self, plane: Plane) -> Spacing:
        limit, stride = 0, 0
        if self.stride != AUTO:
            stride = frame_stride(self.stride, plane)
        else:
            limit = min(self.max_stride, len(plane.keys) // 2)
            if limit < 2:
                stride = max(min(plane.period or NO_FRAMES, limit), 1)
        phase = -1 if self.phase == AUTO else self.phase % stride if stride else self.phase
        is_even = self.rule == "excess"
        return Spacing(
            stride, phase, self.hline, self.vline, self.slash, sink=self.sink, local=self.local,
            limit=limit, by_key=self.vline or not self.slash, by_distance=self.slash,
            is_even=is_even, is_spread=is_even and self.hline and not self.vline,
        )  # fmt: skip


SIZES = (16, 32, 64, 128)
"""Ranks of a block, of which kernels make a tile."""


@dataclass(frozen=True)
class BlockTopP(Pattern):
    """The fewest blocks of keys that hold most of the attention of each block of queries.

    The choice is that of XAttention (Xu et al. 2025, arXiv 2503.16428). It estimates blocks by sums
    along antidiagonals; here the estimate is the attention of some queries of each block, summed by
    blocks of keys. So it looks at the whole prompt, not at its last queries alone.

    Args:
        threshold: share of the estimated attention that the blocks of each block of queries hold.
        block: queries and keys of a block, one of `SIZES`; a block of queries sees its own.
        stride: one in so many queries is in the estimate, and at least one of each block.
        sink: first keys, whose blocks everybody sees.
        floor: blocks that hold no more than this share are left out, whatever the threshold. Where
            attention is spread thin, they cost most and hold least.
        bottom: last ranks of the keys; the blocks of queries that they lie in see everything. A
            head finds a fact for one or two queries of a question at the end, which a sum over
            blocks and heads does not show.
    """

    name: ClassVar[str] = "block-top-p"
    kind: ClassVar[Kind] = "blocks"
    threshold: float = option(0.95, 0, 1)
    block: int = 64
    stride: int = option(32, 1)
    sink: int = option(1, 0)
    floor: float = option(0.01, 0, 1)
    bottom: int = option(64, 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.block not in SIZES:
            sizes = ", ".join(map(str, SIZES))
            raise SoonerError(f"{self.name}: block is {self.block!r}; it must be one of {sizes}")

    @classmethod
    def sized(cls, tokens: int) -> BlockTopP:
        """Returns blocks for a prompt of so many tokens: of more than 8,000, the floor is one and a
        quarter of the share that a block would have if all had the same."""
        return cls(floor=min(cls.floor, 1.25 * cls.block / tokens))

    @property
    def dynamic(self) -> bool:
        return True

    def blocks(self) -> Blocks:
        rows, sink = max(self.block // self.stride, 1), -(-self.sink // self.block)
        return Blocks(self.block, rows, sink, 1 - self.threshold, self.floor, self.bottom)


@dataclass(frozen=True)
class Boundary:
    """Inner patterns behind a boundary; what is not named is dense.

    Args:
        inner: pattern by modality, or by `"query:key"` pair of modalities.
    """

    name: ClassVar[str] = ""
    inner: Mapping[str, Pattern] = field(default_factory=dict)

    @property
    def dynamic(self) -> bool:
        """Whether a pattern inside needs a look at the last queries of every input."""
        return any(pattern.dynamic for pattern in self.inner.values())

    def __post_init__(self) -> None:
        check_keys(f"region of pattern {self.name}", self.inner, self.regions(tuple(MODALITIES)))
        for name, pattern in self.inner.items():
            if not isinstance(pattern, Pattern):
                raise SoonerError(
                    f"{self.name}: {name} is {pattern!r}; a boundary holds plain patterns"
                )
        object.__setattr__(self, "inner", MappingProxyType(dict(self.inner)))

    def __hash__(self) -> int:
        return hash((self.name, frozenset(self.inner.items())))

    def regions(self, present: tuple[str, ...]) -> tuple[str, ...]:
        """Returns names of the regions of a prompt with these modalities; see `plane_of`."""
        raise NotImplementedError

    def parts(self, layout: PromptLayout) -> list[tuple[str, Pattern]]:
        """Returns the regions of this prompt, which cover it without overlap, with patterns."""
        return [(name, self.inner.get(name, Dense())) for name in self.regions(layout.present)]

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for a pattern file."""
        inner = {name: pattern.to_dict() for name, pattern in self.inner.items()}
        return {"pattern": self.name, "inner": inner}

    def __str__(self) -> str:
        inner = "; ".join(f"{name} {pattern}" for name, pattern in self.inner.items())
        return f"{self.name}({inner})"


@dataclass(frozen=True)
class QBoundary(Boundary):
    """Each modality's queries have a pattern of their own (algorithm 2).

    Queries are grouped by modality, keys stay where they are: distances are those of the prompt,
    and the lines of a modality go on behind an interruption by another.

    Args:
        inner: pattern by modality, such as `{"video": Grid(), "text": VerticalSlash()}`.
    """

    name: ClassVar[str] = "q-boundary"
    __hash__ = Boundary.__hash__

    def regions(self, present: tuple[str, ...]) -> tuple[str, ...]:
        return present


@dataclass(frozen=True)
class TwoDBoundary(Boundary):
    """Each pair of modalities has a pattern of its own (algorithm 3).

    Queries and keys are grouped by modality: distances count tokens of the key's modality.

    Args:
        inner: pattern by `"query:key"`, such as `{"video:video": Grid(), "text:video": Dense()}`.
    """

    name: ClassVar[str] = "2d-boundary"
    __hash__ = Boundary.__hash__

    def regions(self, present: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(f"{query}:{key}" for query in present for key in present)


HeadPattern = Pattern | Boundary
"""What one head of one layer runs."""

PATTERNS: dict[str, type[Pattern]] = {
    kind.name: kind for kind in (Dense, AShape, VerticalSlash, Grid, BlockTopP)
}
BOUNDARIES: dict[str, type[Boundary]] = {kind.name: kind for kind in (QBoundary, TwoDBoundary)}


def pattern_from_dict(options: dict[str, Any]) -> HeadPattern:
    """Reads a pattern from what `to_dict` wrote.

    Raises:
        SoonerError: names an unknown pattern, option or region, with the nearest known one.
    """
    if not isinstance(options, dict) or "pattern" not in options:
        raise SoonerError(f"a pattern is an object with the key 'pattern', not {options!r}")
    rest = dict(options)
    name = rest.pop("pattern")
    if name in PATTERNS:
        check_keys(f"option of pattern {name}", rest, PATTERNS[name])
        return PATTERNS[name](**rest)
    check_choice("pattern", name, [*PATTERNS, *BOUNDARIES])
    inner = {region: pattern_from_dict(plain) for region, plain in rest.get("inner", {}).items()}
    return BOUNDARIES[name](inner)  # type: ignore[arg-type]  # a boundary refuses another inside
