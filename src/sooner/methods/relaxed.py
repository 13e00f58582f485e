"""Any method that drafts, judged with a tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..decoding.interface import Drafter
from ..decoding.loop import Rule
from ..errors import SoonerError
from .base import Method
from .context import Context
from .tolerance import Tolerance


@dataclass(frozen=True)
class Relaxed(Method):
    """Another method's drafts under relaxed acceptance (Spec-VLA, eq. 5); see `Tolerance`.

    `Relaxed(Speculative(draft), tolerance)` lets a draft model of a robot policy, a static tree
    or prompt lookup profit from it as `Eagle` does. A tolerance of 0 is exact, greedy and
    sampling, for every draft that does not look at the target's draws.

    Args:
        method: that drafts; its own rule is not used.
        tolerance: how far a draft may be from the target's choice.

    Raises:
        SoonerError: a method that has a tolerance of its own.
    """

    method: Method
    tolerance: Tolerance
    name: ClassVar[str] = "relaxed"

    def __post_init__(self) -> None:
        if getattr(self.method, "tolerance", None) is not None:
            raise SoonerError(
                f"Relaxed: {type(self.method).__name__} has a tolerance of its own; give one of "
                "them"
            )

    def largest_block(self) -> int:
        return self.method.largest_block()

    def drafter(self, context: Context) -> Drafter:
        return self.method.drafter(context)

    def rule(self, context: Context) -> Rule:
        return self.tolerance.rule(context)
