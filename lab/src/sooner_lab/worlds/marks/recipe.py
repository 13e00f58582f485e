"""The training recipes of the world of marks, as data.

Target and draft take the same kinds of stages apart from each other, each from its own seeds:

1. *vision*: the tower alone on single crowded frames, by an auxiliary head that names colour, ring,
   glyph, row and column in each cell. The head is dropped when the checkpoint is written.
2. *joint*: everything, on clips of 4, then 16, then 64 frames, the auxiliary loss beside. Clips are
   whole: no model ever sees a pruned prompt, so that no way to prune was practised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import architecture


@dataclass(frozen=True)
class MarkStage:
    """One stretch of training with its own optimizer, warm-up and cosine.

    Attributes:
        kind: "vision" (single frames, auxiliary loss) or "joint" (caption and questions, too).
        steps: optimizer steps.
        rows: frames a step for "vision", else clips a step.
        lr: peak learning rate.
        frames: of a clip.
        layers: decoder depth from here on; 0 leaves it.
        over: steps of the cosine, where the stage ends before it does; 0 is `steps`.
        bf16: run the decoder under bfloat16 autocast.
    """

    kind: Literal["vision", "joint"]
    steps: int
    rows: int
    lr: float
    frames: int = 1
    layers: int = 0
    over: int = 0
    bf16: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("vision", "joint"):
            raise ValueError(f"kind is {self.kind!r}; it is 'vision' or 'joint'")
        if min(self.steps, self.rows, self.frames) < 1:
            raise ValueError(f"a stage needs steps, rows and frames of at least 1: {self}")


@dataclass(frozen=True)
class MarkRecipe:
    """All that determines a training run, but for the machine's rounding.

    Attributes:
        shape: the model to end with; what its depth lacks of the last stage's is silent layers.
        stages: in order.
        seed: of the data and the first weights.
        save_every: steps between resumable checkpoints.
        check_every: steps between held-out checks; 0 is never.
        keep: shares of the last stage, 0 to 1, after which the checkpoint is kept, as
            `checkpoint-10` is after a tenth.
    """

    shape: architecture.MarkShape
    stages: tuple[MarkStage, ...]
    seed: int = 0
    save_every: int = 100
    check_every: int = 250
    keep: tuple[float, ...] = ()


TARGET = MarkRecipe(
    shape=architecture.TARGET,
    stages=(
        MarkStage("vision", 800, 32, 2e-3),
        MarkStage("joint", 3000, 8, 1e-3, 4, layers=6, bf16=True),
        MarkStage("joint", 1500, 4, 1e-3, 16, bf16=True),
        MarkStage("joint", 800, 2, 7e-4, 64, bf16=True),
    ),
    seed=230,
)
DRAFT = MarkRecipe(
    shape=architecture.DRAFT,
    stages=(
        MarkStage("vision", 800, 32, 2e-3),
        MarkStage("joint", 3000, 8, 1e-3, 4, layers=4, bf16=True),
        MarkStage("joint", 1500, 4, 1e-3, 16, bf16=True),
        MarkStage("joint", 800, 2, 7e-4, 64, bf16=True),
    ),
    seed=231,
    keep=(0.1, 0.3),
)
RECIPES = {"target": TARGET, "draft": DRAFT}
