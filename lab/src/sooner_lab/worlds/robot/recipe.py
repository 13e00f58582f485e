"""The training recipe of the robot miniature, as data.

1. *vision*: the towers alone, by an auxiliary head that finds hand, object and goal among the
   patches. Without it a policy of this size guesses for hours.
2. *policy*: everything together with a decoder of six layers.

Forwards of one token have to be slow beside the head's: the policy runs 20 layers, 14 of which are
silent (`models/silent.py`) and neither trained nor stored. The shipped one had them in while its
last stage ran; without them it follows the experts as closely, so they were taken out.

The draft head is trained on what the finished policy says, 8,000 observations of it, with `HEAD`:
`sooner train draft --miniature robot --samples 8000 --config HEAD.json -o DIR`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..recipes import Recipe, Stage
from . import architecture

RECORDS = {"reach": 10_000, "push": 18_000, "drawer-open": 14_000, "table": 4000}


@dataclass(frozen=True)
class RobotRecipe(Recipe):
    """The recipe of "target"; kinds are "vision" (auxiliary loss) and "policy" (both losses).

    Attributes:
        records: demonstrations of each task.
        data_seed: first episode of the demonstrations.
        check_count: demonstrations of each task that only checks see.
    """

    records: dict[str, int] = field(default_factory=lambda: dict(RECORDS))
    data_seed: int = 1000
    check_count: int = 256


TARGET = RobotRecipe(
    shape=architecture.TARGET,
    stages=(
        Stage("vision", 700, 96, 2e-3),
        Stage("policy", 2700, 64, 1.5e-3, layers=6),
        Stage("policy", 160, 64, 4e-4),
    ),
)

RECIPES = {"target": TARGET}

HEAD = {
    "steps": 6000, "lr": 1e-3, "batch": 32, "warmup": 200, "noise": 0.02, "token_weight": 1.0,
    "unroll": 3, "check_every": 1000,
}  # fmt: skip
"""Settings of the shipped head, as `HeadTraining` takes them."""
