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
        return goal(self.name, self.bound, reached, at_most=self.clamp, **more)


def goal(
    name: str, wanted: float | None, reached: float | None, *, at_most: bool = False, **more: Any
) -> Data:
    """Return one row: `goal`, `wanted`, `clamp`, `reached`, `met`, and what else is known of it.

    Args:
        name: what is to be reached.
        wanted: the bound; `None` is not judged.
        reached: the figure of the run; `None` was not measured.
        at_most: the bound is the greatest value.
        more: such as `interval`, `where` or the `reason` of what is missing.
    """
    met = None
    if wanted is not None and reached is not None:
        met = reached <= wanted if at_most else reached >= wanted
    row = {"goal": name, "wanted": wanted, "at_most": at_most, "reached": reached}
    return {**row, **more, "met": met}


def worst(
    name: str, wanted: float, points: Sequence[tuple[str, float]], *, at_most: bool = False
) -> list[Data]:
    """Return the row of a goal that every point has to reach, in a list; empty without points.

    Args:
        name: what is to be reached.
        wanted: the bound.
        points: each its place, for people, and its figure.
        at_most: the bound is the greatest value.
    """
    if not points:
        return []
    where, reached = (max if at_most else min)(points, key=lambda pair: pair[1])
    missed = [
        [place, value] for place, value in points if (value > wanted if at_most else value < wanted)
    ]
    more = {"where": where, "points": len(points), "missed": missed}
    return [goal(name, wanted, reached, at_most=at_most, **more)]
