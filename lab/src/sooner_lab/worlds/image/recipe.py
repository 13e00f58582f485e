"""The image miniature's recipes as data.

Three parts, each built on the one before:

1. *codes*: the VQ autoencoder, on rough pictures (`world.ROUGH`). First without quantisation, so
   that the codebook can begin at k-means of latents that mean something; then quantised, with
   running averages for entries.
2. *classifier*: the judge of pictures that have been through the codes.
3. *target*: the text-to-image decoder, on a bank of pictures encoded once. Six layers are trained.
   Forwards of one code have to be slow: it runs 24, the others silent (`models/silent.py`) and
   neither trained nor stored. The shipped one had them in while its last stage ran; without them
   its figures are as good, so they were taken out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class ImageStage:
    """One stretch of training with its own optimizer, warm-up and cosine.

    Attributes:
        kind: "free" (codes, not quantised), "quantised" (codes), "name" (classifier) or "predict"
            (target).
        steps: optimizer steps.
        rows: pictures a step.
        lr: peak learning rate.
        layers: a target's depth from here on; 0 leaves it.
        over: steps of the cosine, where the stage ends before it does; 0 is `steps`.
        bf16: run the loss under bfloat16 autocast.
    """

    kind: Literal["free", "quantised", "name", "predict"]
    steps: int
    rows: int
    lr: float
    layers: int = 0
    over: int = 0
    bf16: bool = True


@dataclass(frozen=True)
class ImageRecipe:
    """All that determines a training run, but for the machine's rounding.

    Attributes:
        part: "codes", "classifier" or "target".
        stages: in order; a target's first names the depth to begin with.
        shape: options of the part's `architecture.CodesShape` or `architecture.ImageShape`; what it
            leaves out has its default. The classifier has one shape.
        seed: of the pictures, their order and the first weights.
        bank: pictures encoded once, for a classifier or a target.
        commit: weight of the distance between latents and their entries, for codes.
        captions: captions without a picture a step, for a target's hint; see `hints`.
        hint: weight of a target's hint that names attributes.
        family: weight of the codes' colour families in a target's loss.
        dropped: share of captions replaced by pads, for classifier-free guidance.
        save_every: steps between resumable states.
        check_every: steps between held-out checks; 0 is never.
    """

    part: Literal["codes", "classifier", "target"]
    stages: tuple[ImageStage, ...]
    shape: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    bank: int = 20000
    commit: float = 0.25
    captions: int = 32
    hint: float = 0.5
    family: float = 2.0
    dropped: float = 0.1
    save_every: int = 100
    check_every: int = 250


CODES = ImageRecipe(
    "codes", stages=(ImageStage("free", 100, 16, 2e-3), ImageStage("quantised", 1000, 16, 2e-3))
)
CLASSIFIER = ImageRecipe(
    "classifier", stages=(ImageStage("name", 1500, 64, 2e-3, bf16=False),), seed=1, bank=8000
)
TARGET = ImageRecipe(
    "target",
    stages=(
        ImageStage("predict", 7000, 12, 2e-3, layers=6),
        ImageStage("predict", 60, 12, 5e-5),
    ),
    seed=2,
)
RECIPES = {"codes": CODES, "classifier": CLASSIFIER, "target": TARGET}
