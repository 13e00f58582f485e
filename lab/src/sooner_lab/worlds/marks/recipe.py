"""The training recipes of the world of marks, as data.

Target and draft take the same kinds of stages apart from each other, each from its own seeds:

1. *vision*: the tower alone on single crowded frames, by an auxiliary head that names colour, ring,
   glyph, row and column in each cell. The head is dropped when the checkpoint is written.
2. *joint*, one frame: everything, the auxiliary loss beside. First two pairs fill the frame and a
   question asks what one of them holds: averages over all tokens then tell something, and which
   token to attend to is learnt in 100 steps. With 18 of 64 cells it was not in 400. Answers name
   the pair right before what is to be seen, and only then captions ask for it from further behind.
3. *joint*, on clips of 4, then 16, then 64 frames. Clips are whole: no model ever sees a pruned
   prompt, so that no way to prune was practised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
        frames: of a clip; a single one is as crowded as those that teach the tower.
        questions: behind each clip.
        caption: whether the clip's caption stands before them.
        pairs, repeated: see `world.sample_clip`; repeated pairs fill a frame and are asked of by
            what they hold alone.
        layers: decoder depth from here on; 0 leaves it.
        over: steps of the cosine, where the stage ends before it does; 0 is `steps`.
        bf16: run the decoder under bfloat16 autocast.
    """

    kind: Literal["vision", "joint"]
    steps: int
    rows: int
    lr: float
    frames: int = 1
    questions: int = 8
    caption: bool = True
    pairs: int = 18
    repeated: bool = False
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


EARLY = (
    MarkStage("joint", 150, 8, 2e-3, caption=False, pairs=2, repeated=True, bf16=True),
    MarkStage("joint", 150, 8, 2e-3, caption=False, pairs=6, repeated=True, bf16=True),
    MarkStage("joint", 150, 8, 2e-3, caption=False, repeated=True, bf16=True),
    MarkStage("joint", 350, 8, 2e-3, questions=9, caption=False, bf16=True),
    MarkStage("joint", 600, 6, 1.5e-3, bf16=True),
    MarkStage("joint", 1800, 8, 1.5e-3, 4, bf16=True),
    MarkStage("joint", 400, 4, 1e-3, 16, over=1200, bf16=True),
)
"""From two pairs that fill a frame to clips of 16 frames. There the target named all pairs right
after 240 of 1,200 steps, so the stage was cut to 400."""
TARGET = MarkRecipe(
    shape=architecture.TARGET,
    stages=(
        MarkStage("vision", 1200, 32, 2e-3),
        replace(EARLY[0], layers=6),
        *EARLY[1:],
        MarkStage("joint", 600, 1, 7e-4, 64, bf16=True),
    ),
    seed=230,
)
DRAFT = MarkRecipe(
    shape=architecture.DRAFT,
    stages=(
        MarkStage("vision", 1200, 32, 2e-3),
        replace(EARLY[0], layers=4),
        *EARLY[1:],
        MarkStage("joint", 600, 1, 7e-4, 64, bf16=True),
    ),
    seed=231,
    keep=(0.1, 0.3),
)
RECIPES = {"target": TARGET, "draft": DRAFT}
