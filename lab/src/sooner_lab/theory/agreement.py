"""Where draft and target agree: the acceptance process that all simulated methods share."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from sooner.errors import SoonerError

from .speedup import check

ALWAYS = 1 << 60
"""Length of a run without end."""


@dataclass(frozen=True)
class Agreement:
    """For each output position: would the draft's token pass, the prefix before it being right?

    Under greedy decoding this is a property of the two models and the text, not of the method; so
    one sequence serves all methods and their comparison has no noise of its own. Positions past the
    end begin again at 0.

    Attributes:
        verdicts: one entry a position.

    Raises:
        SoonerError: no verdict.
    """

    verdicts: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not self.verdicts:
            raise SoonerError("an agreement without verdicts; give at least one")

    def at(self, position: int) -> bool:
        """Whether the draft's token at `position` passes."""
        return self.verdicts[position % len(self.verdicts)]

    def run_from(self, position: int) -> int:
        """Draft tokens that pass from `position` on, before one fails; `ALWAYS` if none does."""
        return self._runs[position % len(self.verdicts)]

    @property
    def rate(self) -> float:
        """Share of positions that pass."""
        return sum(self.verdicts) / len(self.verdicts)

    @cached_property
    def _runs(self) -> list[int]:
        runs = [0] * len(self.verdicts)
        run = ALWAYS
        for index in [*range(len(runs))[::-1]] * 2:  # twice: the end goes on at the beginning
            run = min(run + 1, ALWAYS) if self.verdicts[index] else 0
            runs[index] = run
        return runs

    @classmethod
    def even(cls, rate: float, length: int, seed: int = 0) -> Agreement:
        """Positions pass at one rate, with runs at even quantiles of their geometric distribution.

        Only their order is drawn, so that a mean over some thousand tokens has almost no noise.
        """
        check(rate=rate, gamma=length)
        if rate in (0, 1):
            return cls((rate == 1,))
        count = max(1, round(length * (1 - rate)))
        runs = [int(math.log1p(-(i + 0.5) / count) / math.log(rate)) for i in range(count)]
        random.Random(seed).shuffle(runs)
        return cls.from_runs(runs)

    @classmethod
    def from_runs(cls, accepted: Iterable[int]) -> Agreement:
        """Runs of accepted draft tokens, each ended by a rejection that is not counted (paper's M).

        Raises:
            SoonerError: a negative length, or none at all.
        """
        verdicts: list[bool] = []
        for length in accepted:
            if length < 0:
                raise SoonerError(f"run length is {length}; it must be 0 or more")
            verdicts += [True] * length + [False]
        return cls(tuple(verdicts))

    @classmethod
    def from_token_runs(cls, tokens: Iterable[int]) -> Agreement:
        """Runs as `Stats.runs` counts them, the target's correction included."""
        return cls.from_runs(length - 1 for length in tokens)
