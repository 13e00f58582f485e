"""Keys that everybody sees and distances that everybody sees (MInference, Jiang et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...errors import SoonerError
from ..plane import Plane
from ..probe import LAST, Probe
from .base import Kind, Lines, Pattern, check_count

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
        check_count(self, "last_q", least=1)

    @classmethod
    def sized(cls, tokens: int) -> VerticalSlash:
        """MInference's 1,000 and 1,024 lines from 32k tokens on, and in proportion below.

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


def strongest(mass: Tensor, count: int, always: int) -> Tensor:
    """Where the `count` largest masses are, the first `always` among them, `[lines]`."""
    mass = mass.clone()
    mass[:always] = torch.inf
    return mass.topk(min(max(count, always), len(mass))).indices
