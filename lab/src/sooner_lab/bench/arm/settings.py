"""What `sooner bench arm` measures; fixed, with gate and goals, before any result."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sooner.checks import check_whole

SEED = 20_261_127
TOLERANCES = (5, 9, 15)
"""Bins of the relaxed arms; 0 is plain decoding, which strict acceptance equals."""
STARTS = {"lift": 106, "door": 107, "nut": 107}
"""Of each task, paired over the tolerances: 320."""
FIRST_START = 910_000
LIMITS = {"lift": 48, "door": 170, "nut": 176}
"""Actions within which a start has to be done: a third more than the experts take on average; at
the door, which takes them 90 to 160, all that they take: with 124 they missed four of 20 starts.
With twice the time a policy did 97 % of 60 other starts, which leaves little to lose."""
FEW = 20
"""Starts of each task for the arms of the gate."""
FIRST_MOMENT, MOMENT_EPISODES = 710_000, 8
"""Episodes of each task whose moments acceptance is counted on; the target acts in them."""
EVERY = 3
"""Of those moments, every third one; drafts know the action before it."""
SHAKEN = 40
"""Bins by which every axis of the `shaken` arm is off, its sign drawn for each episode."""
COUNTED = 30
"""First actions over which a deviation is summed: fewer than any episode has, since an episode
that fails is longer."""
THIRDS = 3

EXPERT, PLAIN, BLIND, RANDOM, SHAKE = "expert", "plain", "blind", "random", "shaken"
GATE_ARMS = (EXPERT, BLIND, RANDOM, SHAKE)


@dataclass(frozen=True)
class ArmBound:
    """A bound of gate or goals: in percent or points of success, or an acceptance length.

    Attributes:
        what: is measured.
        low, high: where it has to lie.
        why: a world that does not keep it may not judge, or what the goal says.
    """

    what: str
    low: float
    high: float
    why: str

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


GATE = (
    ArmBound(EXPERT, 95, 100, "the tasks can be done"),
    ArmBound(PLAIN, 60, 98, "there are successes to lose, and starts that are hard"),
    ArmBound(BLIND, 0, 10, "the policy needs to see"),
    ArmBound(RANDOM, 0, 5, "chance does not succeed"),
    ArmBound(SHAKE, -100, -10, "actions that are off cost successes, in points of plain's"),
)
STRICT, RELAXED = "strict", "relaxed r=9"
REGIME = (
    ArmBound(STRICT, 1.6, 2.0, "as in the paper"),
    ArmBound(RELAXED, 2.1, 2.9, "as in the paper"),
)
"""Acceptance lengths of the chains of the head that acts: whether this is the paper's regime. Of
its three states that one acts whose strict length is nearest to the middle of the first bound."""
MARGIN = -5.0
"""Points of success that every tolerance may cost at most, by the paired 95 % lower bound."""


@dataclass(frozen=True)
class ArmSettings:
    """How much of it.

    Attributes:
        models: folder of a run of `sooner train miniature arm`.
        heads: folders of the draft's run, the last one the finished head.
        parts: "gate" and "loops" in closed loops, "acceptance" on recorded moments.
        starts: of each task; `None` is `STARTS`, fewer are a trial.
        processes: that act side by side, with a thread each.
    """

    models: Path
    heads: tuple[str, ...] = ("head-10", "head-30", "head")
    parts: tuple[str, ...] = ("gate", "acceptance", "loops")
    starts: int | None = None
    processes: int = 2

    def __post_init__(self) -> None:
        check_whole("processes", self.processes)
        if self.starts is not None:
            check_whole("starts", self.starts)

    def counts(self) -> dict[str, int]:
        """Starts of each task."""
        most = self.starts or max(STARTS.values())
        return {name: min(count, most) for name, count in STARTS.items()}


PARTS = ("gate", "acceptance", "loops")
