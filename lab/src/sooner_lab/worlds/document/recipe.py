"""The training recipes of the document miniature, as data.

The *draft* is a decoder of eight layers, and all that is learnt:

1. *vision*: the tower alone, on strips of text and then on whole pages, by an auxiliary loss that
   names the word which begins in each visual token, by the decoder's own embeddings: reading is
   copying from then on. Strips alone are not enough: a tower that names 93 % of their words names
   58 % of a full page's.
2. *language*: the decoder on pages that the frozen tower has encoded once, from single lines to
   full pages. Auxiliary losses guide four attention heads, from each word on the page to the one
   read before it, twice, from the answer to the last word said, and to the next one.
3. *joint*: everything together on freshly drawn pages, for the errors that are left.

The *target* starts from it and goes on a little, with the tower as it is, since fresh auxiliary
heads would spoil it. Forwards of one token have to be slow beside the draft's: it runs 48 layers,
forty of which are silent (`models/silent.py`) and neither trained nor stored. The shipped one had
them in while its last stage ran, which moved their output projections by 2e-4 at most; without them
its figures are the same, and they were taken out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from . import architecture

Size = tuple[int, int]
STRIPS: tuple[Size, ...] = ((1, 16), (2, 16), (3, 16), (3, 8))
MIXED: tuple[Size, ...] = ((20, 16), (20, 16), (10, 16), (6, 16), (3, 16), (4, 8))
LINES: tuple[Size, ...] = ((1, 16), (1, 8), (2, 16), (3, 8))
PARTS: tuple[Size, ...] = ((3, 16), (4, 8), (5, 16), (7, 8), (8, 16))
PAGES: tuple[Size, ...] = ((20, 16), (20, 16), (10, 16), (14, 16), (6, 16), (4, 8))
FULL: tuple[Size, ...] = 3 * ((20, 16),) + PAGES + ((5, 16), (3, 16))


@dataclass(frozen=True)
class DocumentStage:
    """One stretch of training with its own optimizer, warm-up and cosine.

    Attributes:
        kind: "vision" (tower, auxiliary loss), "language" (frozen tower) or "joint" (both).
        steps: optimizer steps.
        tokens: visual tokens a step, in whole pages, at least one.
        lr: peak learning rate.
        sizes: rows and columns of pages in visual tokens; each step draws one.
        layers: decoder depth from here on; 0 leaves it.
        pages: encoded pages of each size, for "language".
        guide: weight of the decoder's auxiliary losses; 0 where layers have been inserted.
        over: steps of the cosine, where the stage ends before it does; 0 is `steps`.
        bf16: run the decoder under bfloat16 autocast, which pays on full pages.
    """

    kind: Literal["vision", "language", "joint"]
    steps: int
    tokens: int
    lr: float
    sizes: tuple[Size, ...]
    layers: int = 0
    pages: int = 0
    guide: float = 0.0
    over: int = 0
    bf16: bool = False


@dataclass(frozen=True)
class DocumentRecipe:
    """All that determines a training run, but for the machine's rounding.

    Attributes:
        shape: the model to end with; the first stage with `layers` sets the depth to begin with.
            What the last stage's depth lacks of it is silent layers (`models/silent.py`).
        stages: in order.
        seed: of the pages and the first weights.
        save_every: steps between resumable states.
        check_every: steps between held-out checks; 0 is never.
        card_pages: pages of each size that the card's accuracy is measured on.
        start: checkpoint folder whose weights the first stage begins with, seen from the run's
            own folder; empty is fresh weights. The card then tells what those weights went
            through before.
    """

    shape: architecture.DocumentShape
    stages: tuple[DocumentStage, ...]
    seed: int = 0
    save_every: int = 100
    check_every: int = 200
    card_pages: int = 32
    start: str = ""


DRAFT = DocumentRecipe(
    shape=architecture.DRAFT,
    stages=(
        DocumentStage("vision", 1000, 768, 2e-3, STRIPS),
        DocumentStage("vision", 400, 960, 1.5e-3, MIXED),
        DocumentStage("language", 300, 768, 1.5e-3, LINES, pages=1500, guide=0.3),
        DocumentStage("language", 250, 1536, 1.2e-3, PARTS, pages=300, guide=0.3, bf16=True),
        DocumentStage("language", 1400, 2560, 1e-3, PAGES, pages=400, guide=0.3, bf16=True),
        DocumentStage("joint", 1100, 1920, 6e-4, FULL, guide=0.3, bf16=True),
        DocumentStage("joint", 700, 2560, 5e-4, FULL, guide=0.2, bf16=True),
    ),
)
TARGET = DocumentRecipe(
    shape=architecture.TARGET,
    stages=(
        # 60 steps at 3e-4 cost four of a hundred words: what is learnt there is easily lost.
        DocumentStage("language", 40, 1280, 1e-5, PAGES, pages=48, bf16=True),
    ),
    seed=1,
    start="../draft/checkpoint",
)
RECIPES: dict[str, Any] = {"draft": DRAFT, "target": TARGET}
