"""The training recipes of the motion miniature, as data.

Three parts, each from those before it:

1. *tokenizer*: first without quantisation, so that the codebook can begin at k-means of latents
   that mean something; then quantised, with running averages for codes. It sees shapes anywhere
   and twice the grain, so that codes don't change with the noise of the world's own clips.
2. *probe*: a small CNN that names what is where, on the tokenizer's reconstructions.
3. *target*: the AR model on a bank of clips encoded once. A shallow model on stretches of three
   latent frames learns what rests and what moves at a fraction of the cost; then
   `architecture.wake` wakes layers that change nothing, and training goes on with more depth, on
   whole clips. Most codes of a clip are of the resting wall, and which way a shape goes shows in
   a few alone (the rest follow from them), so later stages weigh those more.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..recipes import Recipe, Stage


@dataclass(frozen=True)
class MotionStage(Stage):
    """Its `kind` is "plain" or "quantised" (tokenizer), "predict" (target) or "name" (probe).

    Attributes:
        latents: latent frames of each clip; 0 is all of them.
        focus: weight of the codes of blocks that a shape passes through, the others having 1.
            Most blocks show a resting wall, and of that little is left to learn.
        front: weight of the codes of blocks that a shape has just entered or left, if it is more:
            the way that a shape goes shows there first, and later codes follow from them.
        lattice: pixels between the places where shapes start; the world's own is 4, and 1 shows
            a part more than it needs.
    """

    bf16: bool = True
    latents: int = 0
    focus: float = 1.0
    front: float = 1.0
    lattice: int = 1


@dataclass(frozen=True)
class MotionRecipe(Recipe):
    """The recipe of "tokenizer", "probe" or "target".

    Attributes:
        bank: clips encoded once for a target.
        corrupt: share of a target's input codes replaced at random while it learns, so that it
            trusts the latent frames before more than a neighbour that may be wrong.
        hint: weight of a target's loss for naming the shapes, see `hints`; 0 is without.
        grain: factor on the world's sensor noise while a tokenizer learns, so that codes change
            less with the noise.
    """

    save_every: int = 50
    check_every: int = 100
    bank: int = 6000
    corrupt: float = 0.05
    hint: float = 0.5
    grain: float = 1.0


TOKENIZER = MotionRecipe(
    "tokenizer",
    stages=(
        MotionStage("plain", 300, 8, 2e-3, latents=3),
        MotionStage("quantised", 3200, 8, 1.5e-3, latents=3),
    ),
    grain=2.0,
)
TARGET = MotionRecipe(
    "target",
    stages=(
        MotionStage(
            "predict", 1500, 10, 2e-3, latents=3, layers=6, focus=4.0, lattice=4, over=3000
        ),
        MotionStage(
            "predict", 2000, 10, 2e-3, latents=3, focus=4.0, front=8.0, lattice=4, over=3000
        ),
        MotionStage("predict", 1500, 3, 1.6e-3, focus=4.0, front=8.0, lattice=4),
        MotionStage("predict", 500, 3, 8e-4, layers=12, focus=4.0, front=8.0, lattice=4),
        MotionStage("predict", 240, 3, 4e-4, layers=24, focus=2.0, front=4.0, lattice=4),
    ),
    bank=5000,
)
PROBE = MotionRecipe("probe", stages=(MotionStage("name", 1600, 8, 3e-3, latents=2, bf16=False),))
RECIPES = {"tokenizer": TOKENIZER, "probe": PROBE, "target": TARGET}
