"""What every pattern of one plane is: a frozen dataclass that turns an estimate into lines."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...checks import check_fields, check_keys
from ..pairs import GridIndex, Index, LineIndex
from ..plane import Plane
from ..probe import Probe

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

    Raises:
        SoonerError: a field that is out of its range; names the pattern, the field and its value.
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

    @classmethod
    def from_dict(cls, options: dict[str, Any]) -> Pattern:
        """Reads a pattern from `to_dict`'s options, without the name.

        Raises:
            SoonerError: names an unknown option.
        """
        check_keys(f"option of pattern {cls.name}", options, cls)
        return cls(**options)

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
