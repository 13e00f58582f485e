"""Step times of a pair, in seconds and in the simulators' whole nanoseconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sooner.errors import SoonerError

NANO = 1_000_000_000


@dataclass(frozen=True)
class Curve:
    """Seconds of a target forward by the number of tokens in it, linear between known points.

    Below the first point it is flat; above the last it goes on with the last slope, never falling.

    Attributes:
        points: (tokens, seconds), rising in tokens.

    Raises:
        SoonerError: no point, or tokens that do not rise.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        sizes = [size for size, _ in self.points]
        if not sizes or sizes != sorted(set(sizes)) or sizes[0] < 1:
            raise SoonerError(
                f"step times are known at {sizes} tokens; give rising sizes from 1 up"
            )

    @classmethod
    def of(cls, seconds: Mapping[int, float]) -> Curve:
        """From tokens -> seconds, in any order."""
        return cls(tuple(sorted(seconds.items())))

    def __call__(self, tokens: int) -> float:
        if tokens <= self.points[0][0] or len(self.points) == 1:
            return self.points[0][1]
        pairs = zip(self.points, self.points[1:], strict=False)
        (n0, s0), (n1, s1) = next((p for p in pairs if tokens <= p[1][0]), self.points[-2:])
        slope = (s1 - s0) / (n1 - n0)
        return s0 + slope * (tokens - n0) if tokens <= n1 else s1 + max(slope, 0) * (tokens - n1)


@dataclass(frozen=True)
class StepCosts:
    """Step times of a pair, in seconds.

    Attributes:
        target: T_p; a number, or a function of the tokens in the forward (the last committed one
            and the drafts that wait), such as a `Curve`.
        draft: T_q, one draft forward.
        transfer: one message from one side to the other.

    Raises:
        SoonerError: a time that is negative, zero where it can't be, or not finite.
    """

    target: float | Callable[[int], float]
    draft: float
    transfer: float = 0.0
    _known: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _positive("target step", self.step(1))
        _positive("draft step", self.draft)
        if not 0 <= self.transfer < math.inf:
            raise SoonerError(f"transfer takes {self.transfer} s; it must be finite and 0 or more")

    def step(self, tokens: int) -> float:
        """Seconds of a target forward over `tokens` tokens."""
        return self.target(tokens) if callable(self.target) else self.target

    @property
    def ratio(self) -> float:
        """c = T_p / T_q for a plain step."""
        return self.step(1) / self.draft

    # Simulated clocks count whole nanoseconds: what ends at the same moment does so exactly.
    def step_ns(self, tokens: int) -> int:
        if tokens not in self._known:
            seconds = self.step(tokens)
            _positive(f"target step over {tokens} tokens", seconds)
            self._known[tokens] = max(1, round(seconds * NANO))
        return self._known[tokens]

    @property
    def draft_ns(self) -> int:
        return max(1, round(self.draft * NANO))

    @property
    def transfer_ns(self) -> int:
        return round(self.transfer * NANO)


def _positive(name: str, seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise SoonerError(f"{name} takes {seconds} s; it must be finite and above 0")
