"""The training recipe of the video miniature, as data.

Why these stages (each was seen to pay on two CPU cores):

1. *vision*: the tower alone on single frames, by an auxiliary linear head that names background,
   shape, colour and cell in each pooled token. Without it positions stay at chance for hundreds
   of steps. The head is dropped when the checkpoint is written. A draft's tower goes on until
   *every* token of a frame names its shape: which tokens a draft is left with then matters less.
2. *language*, shallow: a decoder of four layers alone, on features encoded once per stage by the
   frozen tower, so that a step pays for neither rendering nor vision: clips of one scene first
   (right after 300 steps), then of up to six, then of up to ten.
3. *language*, still shallow, on clips whose scenes last: two frames each, or 4, 8 or 12, and now
   and then unevenly. Where a scene ends is hard to detect at first: a caption that misses one
   boundary is wrong from there on, and it takes thousands of steps until none is missed. A draft's
   long rows lose most of their visual tokens in most steps: those that the target would prune.

Forwards of one token have to be slow beside the draft's: the target runs 28 layers, 24 of which are
silent (`models/silent.py`) and neither trained nor stored.

The shipped target took these stages in several sittings, each from the checkpoint of the one
before. It had 22 layers and a stage that trained everything together on freshly rendered frames
before its third part; the four layers that did its work went on alone from there. The silent
layers were in while its last stage ran, which moved their output projections by 5e-4 at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..recipes import Recipe, Stage
from . import architecture
from .pacing import ScenePacing

PAIRS = ScenePacing()
LONG = ScenePacing(pairs=0.35, even=0.2, uneven=0.3, needle=0.15)
SLOW = ScenePacing(pairs=0.4, even=0.55, uneven=0.05)
SLOWER = ScenePacing(pairs=0.4, even=0.57, uneven=0.03)
SLOWEST = ScenePacing(pairs=0.3, even=0.67, uneven=0.03)


@dataclass(frozen=True)
class VideoStage(Stage):
    """Its `kind` is "vision" (frames, auxiliary loss) or "language" (frozen tower, caption loss).

    A step has `rows` frames for "vision", else so many tokens in whole rows. bfloat16 pays on
    long clips: those of six scenes take 0.75 of the time so, those of one scene 1.15 of it.

    Attributes:
        scenes: fewest and most scenes of a clip; each step draws one number.
        pace: how long the scenes of a clip last; "vision" has no clips.
        pruned: share of "language" steps whose rows lose most of their visual tokens; the others
            keep their positions. Teaches a draft to work on a pruned prompt.
        ranked: pruned rows keep what the recipe's ranker would, and short ones all; else they lose
            tokens at random.
        everywhere: every token of a frame learns to name its shape, not only those that show it, so
            that it matters less which of them a draft is left with.
    """

    scenes: tuple[int, int] = (1, 1)
    pace: ScenePacing = PAIRS
    pruned: float = 0.0
    ranked: bool = False
    everywhere: bool = False


@dataclass(frozen=True)
class VideoRecipe(Recipe):
    """The recipe of "target" or "draft".

    Attributes:
        bank: scenes encoded for a "language" stage.
        ranker: checkpoint folder of the target, seen from the run's own folder, by whose ranking
            "ranked" stages prune.
    """

    bank: int = 6000
    ranker: str = ""


def _long(steps: int, lr: float, scenes: tuple[int, int] = (2, 9), **options: Any) -> VideoStage:
    """A stage of captions, 5,000 tokens a step."""
    return VideoStage("language", steps, 5000, lr, bf16=True, scenes=scenes, **options)


TARGET = VideoRecipe(
    "target",
    shape=architecture.TARGET,
    stages=(
        VideoStage("vision", 1800, 32, 2e-3),
        VideoStage("vision", 1000, 64, 1.5e-3),
        VideoStage("language", 300, 2500, 1.5e-3, layers=4),
        VideoStage("language", 900, 4000, 1.5e-3, scenes=(1, 6), bf16=True),
        _long(900, 1e-3, (1, 10)),
        VideoStage("vision", 300, 64, 8e-4),
        _long(800, 1e-3, (1, 10)),
        VideoStage("vision", 600, 64, 1e-3),
        _long(900, 1.2e-3, (1, 10)),
        VideoStage("language", 600, 4000, 8e-4, scenes=(1, 10), pace=LONG, bf16=True),
        _long(2400, 1.2e-3, pace=ScenePacing(0.55, 0.4, 0.05)),
        _long(2000, 7e-4, pace=ScenePacing(0.6, 0.38, 0.02)),
        _long(2650, 1e-3, pace=ScenePacing(0.35, 0.62, 0.03), over=3000),
        _long(4400, 9e-4, (2, 10), pace=ScenePacing(0.47, 0.5, 0.03)),
        VideoStage(
            "language", 60, 4000, 2e-5, scenes=(2, 9), pace=ScenePacing(0.5, 0.48, 0.02), bf16=True
        ),
    ),
)
DRAFT = VideoRecipe(
    "draft",
    shape=architecture.DRAFT,
    stages=(
        VideoStage("vision", 1500, 32, 2e-3),
        VideoStage("language", 300, 2500, 2e-3, layers=2),
        VideoStage("language", 600, 4000, 2e-3, scenes=(1, 6), bf16=True),
        _long(600, 1e-3, (1, 10)),
        _long(300, 1e-3, (1, 10)),
        _long(1100, 1.5e-3, (2, 10), layers=4),
        _long(1000, 1e-3, (1, 10), pace=LONG, pruned=0.33),
        _long(2600, 1.5e-3, pace=SLOW, pruned=0.6),
        _long(1500, 1e-3, pace=SLOWER, pruned=0.7),
        VideoStage("vision", 2500, 64, 2e-3, everywhere=True),
        _long(9000, 1.5e-3, pace=SLOWEST, pruned=0.6, ranked=True),
    ),
    seed=1,
    ranker="../target/checkpoint",
)
RECIPES = {"target": TARGET, "draft": DRAFT}
