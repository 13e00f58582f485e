"""The training recipe of the robot miniature, as data.

1. *vision*: the towers alone, by an auxiliary head that finds hand, object and goal among the
   patches. Without it a policy of this size guesses for hours.
2. *policy*: everything together with a decoder of six layers.

Forwards of one token have to be slow beside the head's: the policy runs 20 layers, 14 of which are
silent (`models/silent.py`) and neither trained nor stored. The shipped one had them in while its
last stage ran; without them it follows the experts as closely, so they were taken out.

The draft head is trained on what the finished policy says, 8,000 observations of it, with `HEAD`:
`sooner train draft --miniature robot --samples 8000 --settings HEAD.json -o DIR`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..stages import Stage
from . import architecture

RECORDS = {"reach": 10_000, "push": 18_000, "drawer-open": 14_000, "table": 4000}


@dataclass(frozen=True)
class RobotStage(Stage):
    """Its `kind` is "vision" (auxiliary loss) or "policy" (both losses through everything)."""


@dataclass(frozen=True)
class RobotRecipe:
    """All that determines a training run, but for the machine's rounding.

    Attributes:
        shape: the policy to end with; the first stage with `layers` sets the depth to begin with.
            What the last stage's depth lacks of it is silent layers (`models/silent.py`).
        stages: in order.
        records: demonstrations of each task.
        seed: of the demonstrations' order, the light and the first weights.
        data_seed: first episode of the demonstrations.
        check_count: demonstrations of each task that only checks see.
        save_every, check_every: steps between resumable states, and between held-out checks.
    """

    shape: architecture.RobotShape
    stages: tuple[RobotStage, ...]
    records: dict[str, int] = field(default_factory=lambda: dict(RECORDS))
    seed: int = 0
    data_seed: int = 1000
    check_count: int = 256
    save_every: int = 100
    check_every: int = 250


TARGET = RobotRecipe(
    shape=architecture.TARGET,
    stages=(
        RobotStage("vision", 700, 96, 2e-3),
        RobotStage("policy", 2700, 64, 1.5e-3, layers=6),
        RobotStage("policy", 160, 64, 4e-4),
    ),
)

RECIPES: dict[str, Any] = {"target": TARGET}

HEAD = {
    "steps": 6000, "lr": 1e-3, "batch": 32, "warmup": 200, "noise": 0.02, "token_weight": 1.0,
    "unroll": 3, "check_every": 1000,
}  # fmt: skip
"""Settings of the shipped head, as `HeadTraining` takes them."""
