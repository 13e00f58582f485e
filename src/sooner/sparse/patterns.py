"""The patterns of sparse attention by name, and boundaries, which hold one for each modality.

A pattern of one plane is a frozen dataclass that turns an estimate into lines, static ones and
those of MInference, or into a grid that returns with frames.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ..checks import check_choice, check_fields, check_keys, option
from ..errors import SoonerError
from .modality import MODALITIES, PromptLayout
from .pairs import GridIndex, Index, LineIndex
from .plane import Plane
from .probe import LAST, Probe

logger = logging.getLogger("sooner")

Kind = Literal["dense", "lines", "grid"]


@dataclass(frozen=True, eq=False)
class Lines:
    """The entry that one head has in a `LineIndex`: ranks, distances `frontier - rank`, last
    queries."""

    vertical: Tensor
    slash: Tensor
    bottom: int = 0


@dataclass(frozen=True, eq=False)
class Spacing:
    """The entry that one head has in a `GridIndex`: numbers, or tensors of no dimension."""

    stride: int | Tensor
    phase: int | Tensor
    hline: bool = False
    vline: bool = False
    slash: bool = False
    segment: bool = False
    sink: int = 0
    local: int = 1


@dataclass(frozen=True)
class Pattern:
    """Which keys a head sees inside a plane; the mode is *approximate*, save for `Dense`.

    Attributes:
        name: as it stands in pattern files and on the command line.
        kind: which kernel runs it.
        dynamic: whether it needs a look at the last queries of every input.
    """

    name: ClassVar[str] = ""
    kind: ClassVar[Kind] = "dense"
    dynamic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}: ")

    def lines(self, plane: Plane, seen: Probe | None, place: int) -> Lines:
        """Returns the lines of one head, for patterns of kind `lines`.

        Args:
            seen: what the probe found; `None` for patterns that are not dynamic.
            place: the head's place in the probe.
        """
        raise NotImplementedError

    def spacing(self, plane: Plane, seen: Probe | None, place: int) -> Spacing:
        """Returns the spacing of one head, for patterns of kind `grid`."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for a pattern file."""
        return {"pattern": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}

    def __str__(self) -> str:
        values = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields(self))
        return f"{self.name}({values})"


def build(patterns: list[Pattern], plane: Plane, seen: Probe | None) -> Index:
    """Returns one index for heads whose patterns are of one kind, `lines` or `grid`.

    Args:
        patterns: of each head, in the probe's order.
    """
    if patterns[0].kind == "lines":
        drawn = [p.lines(plane, seen, place) for place, p in enumerate(patterns)]
        vertical, slash = [d.vertical for d in drawn], [d.slash for d in drawn]
        return LineIndex.build(plane, vertical, slash, [d.bottom for d in drawn])
    device = plane.keys.device
    spaced = [p.spacing(plane, seen, place) for place, p in enumerate(patterns)]
    columns = (
        torch.stack([torch.as_tensor(getattr(s, field.name), device=device) for s in spaced])
        for field in fields(GridIndex)
    )
    return GridIndex(*columns)


def strongest(weight: Tensor, count: int, always: int) -> Tensor:
    """Returns where the `count` largest weights are, the first `always` among them, `[lines]`."""
    weight = weight.clone()
    weight[:always] = torch.inf
    return weight.topk(min(max(count, always), len(weight))).indices


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

    def lines(self, plane: Plane, seen: Probe | None, place: int) -> Lines:
        if seen is None:
            raise SoonerError(
                f"{self.name} takes its lines from an input; give the queries and keys of a head"
            )
        return Lines(
            strongest(seen.vertical[place], self.vertical, FIRST),
            strongest(seen.slash[place], self.slash, NEAR),
        )


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
    sink: int = option(128, 0)
    local: int = option(4096, 1)

    def lines(self, plane: Plane, seen: Probe | None, place: int) -> Lines:
        keys, device = len(plane.keys), plane.keys.device
        sink = torch.arange(min(self.sink, keys), device=device)
        return Lines(sink, torch.arange(min(self.local, keys), device=device))


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
SINK = 8  # first keys get attention for being first, which says nothing about a stride
PEAKS = 16  # strides that are tried


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
    """

    name: ClassVar[str] = "grid"
    kind: ClassVar[Kind] = "grid"
    dynamic: ClassVar[bool] = True
    stride: int | Literal["auto", "frame"] = option(AUTO, 1)
    phase: int | Literal["auto"] = option(AUTO, 0)
    hline: bool = True
    vline: bool = True
    slash: bool = True
    max_stride: int = option(1024, 2)
    sink: int = option(0, 0)
    local: int = option(1, 1)
    last_q: int = option(LAST, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
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
    columns[max(len(columns) - len(seen.frontier), 0) :] = 0
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


@dataclass(frozen=True)
class Boundary:
    """Inner patterns behind a boundary; what is not named is dense.

    Args:
        inner: pattern by modality, or by `"query:key"` pair of modalities.
    """

    name: ClassVar[str] = ""
    inner: Mapping[str, Pattern] = field(default_factory=dict)

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
    kind.name: kind for kind in (Dense, AShape, VerticalSlash, Grid)
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
