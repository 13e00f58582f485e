"""Goals of benches: what is to be reached, fixed before a result, and what a run reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Data = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """A goal of a bench.

    Attributes:
        name: what is to be reached, for people.
        bound: the least value, or the greatest where `clamp`; `None` is shown and not judged.
        figure: takes the figure from a result; `None` or a `KeyError` where it was not measured,
            whose text is the reason.
        at_most: the figure has to stay at or below the bound.
    """

    name: str
    bound: float | None
    figure: Callable[[Data], float | None]
    clamp: bool = False

    def judge(self, result: Data) -> Data:
        """Return the row of the goal, see `goal`; `reason` says why a figure is missing."""
        reason = "it was not measured"
        try:
            reached = self.figure(result)
        except (KeyError, IndexError, TypeError) as error:
            reached, reason = None, str(error).strip("'\"") or reason
        more = {} if reached is not None else {"reason": reason}
        return goal(self.name, self.bound, reached, is_upper=self.clamp, **more)


def goal(
    name: str, bound: float | None, reached: float | None, *, is_upper: bool = False, **more: Any
) -> Data:
    """Return one row: `goal`, `bound`, `clamp`, `reached`, `met`, and what else is known of it.

    Args:
        name: what is to be reached.
        bound: the bound; `None` is not judged.
        reached: the figure of the run; `None` was not measured.
        is_upper: the bound is the greatest value.
        more: such as `interval`, `where` or the `reason` of what is missing.
    """
    met = None
    if bound is not None and reached is not None:
        met = reached <= bound if is_upper else reached >= bound
    row = {"goal": name, "wanted": bound, "at_most": is_upper, "reached": reached}
    return {**row, **more, "met": met}


def worst(
    name: str, bound: float, points: Sequence[tuple[str, float]], *, is_upper: bool = False
) -> list[Data]:
    """Return the row of a goal that every point has to reach, in a list; empty without points.

    Args:
        name: what is to be reached.
        bound: the bound.
        points: each its place, for people, and its figure.
        is_upper: the bound is the greatest value.
    """
    if not points:
        return []
    where, reached = (max if is_upper else min)(points, key=lambda pair: pair[1])
    missed = [
        [place, value] for place, value in points if (value > bound if is_upper else value < bound)
    ]
    more = {"where": where, "points": len(points), "missed": missed}
    return [goal(name, bound, reached, is_upper=is_upper, **more)]
