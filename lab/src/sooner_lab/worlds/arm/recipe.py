"""How the policy of the world of the arm and its draft head are trained, as data.

`target` imitates 600 noisy episodes; `head` learns from what the finished target says in closed
loops of its own. Neither is trained on acceptance or success, which are judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ..recipes import PlainStage
from ..robot.architecture import RobotShape
from .simulator import TASKS

NOISE, LEAN = 2.0, 12.0
"""Of the demonstrations, in bins, see `ArmNoise`. Noise of 4 bins alone left nearly every draft
within 9 bins of the target's (5.27 of 6 tokens a round at r = 9, the paper has 2.1 to 2.9); modes
12 bins apart are too far from each other for a tolerance of 9 and near enough for 15."""


SHAPE = RobotShape(6, 192, 6, 512, 2, 96, 4)


@dataclass(frozen=True)
class ArmStage(PlainStage):
    """`rows`: moments a step."""

    kind: Literal["imitate"] = "imitate"


@dataclass(frozen=True)
class ArmRecipe:
    """All that determines the target, but for the machine's rounding.

    Attributes:
        shape: of the policy.
        stages: in order.
        episodes: demonstrations of each task.
        held: of these, the last ones, which only checks see.
        noise, lean: of the demonstrations, in bins.
        seed: of order and first weights.
        data_seed: of the first demonstration.
        save_every, check_every: as in `marks.recipe.MarkRecipe`.
    """

    shape: RobotShape = SHAPE
    stages: tuple[ArmStage, ...] = (ArmStage(3000, 64, 1.5e-3),)
    episodes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TASKS, 200))
    held: int = 10
    noise: float = NOISE
    lean: float = LEAN
    seed: int = 240
    data_seed: int = 1000
    save_every: int = 200
    check_every: int = 500


@dataclass(frozen=True)
class ArmHeadRecipe:
    """All that determines the head.

    Attributes:
        episodes: of each task, in which the target acts and is recorded.
        data_seed: of the first.
        settings: of `HeadTraining`.
        seed: of the head's first weights and the samples' order.
        keep: shares of its steps after which the head is kept, as `head-10` is after a tenth.
    """

    episodes: int = 40
    data_seed: int = 500_000
    settings: dict[str, Any] = field(
        default_factory=lambda: {
            "steps": 3000, "lr": 1e-3, "batch": 32, "warmup": 150, "noise": 0.02,
            "token_weight": 1.0, "unroll": 3, "check_every": 500,
        }
    )  # fmt: skip
    seed: int = 0
    keep: tuple[float, ...] = (0.1, 0.3)


TARGET = ArmRecipe()
HEAD = ArmHeadRecipe()
RECIPES: dict[str, Any] = {"target": TARGET, "head": HEAD}
