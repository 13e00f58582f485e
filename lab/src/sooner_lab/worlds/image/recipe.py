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

from dataclasses import dataclass

from ..recipes import Recipe, Stage
from . import architecture


@dataclass(frozen=True)
class ImageStage(Stage):
    """Its `kind` is "free" or "quantised" (codes), "name" (classifier) or "predict" (target)."""

    bf16: bool = True


@dataclass(frozen=True)
class ImageRecipe(Recipe):
    """The recipe of "codes", "classifier" or "target".

    Attributes:
        bank: pictures encoded once, for a classifier or a target.
        commit: weight of the distance between latents and their entries, for codes.
        captions: captions without a picture a step, for a target's hint; see `hints`.
        hint: weight of a target's hint that names attributes.
        family: weight of the codes' colour families in a target's loss.
        dropped: share of captions replaced by pads, for classifier-free guidance.
    """

    bank: int = 20000
    commit: float = 0.25
    captions: int = 32
    hint: float = 0.5
    family: float = 2.0
    dropped: float = 0.1


CODES = ImageRecipe(
    "codes",
    stages=(ImageStage("free", 100, 16, 2e-3), ImageStage("quantised", 1000, 16, 2e-3)),
    shape=architecture.CodesShape(),
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
    shape=architecture.ImageShape(),
    seed=2,
)
RECIPES = {"codes": CODES, "classifier": CLASSIFIER, "target": TARGET}
