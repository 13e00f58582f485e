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

from ..recipes import Recipe, Stage
from . import architecture

Size = tuple[int, int]
STRIPS: tuple[Size, ...] = ((1, 16), (2, 16), (3, 16), (3, 8))
MIXED: tuple[Size, ...] = ((20, 16), (20, 16), (10, 16), (6, 16), (3, 16), (4, 8))
LINES: tuple[Size, ...] = ((1, 16), (1, 8), (2, 16), (3, 8))
PARTS: tuple[Size, ...] = ((3, 16), (4, 8), (5, 16), (7, 8), (8, 16))
PAGES: tuple[Size, ...] = ((20, 16), (20, 16), (10, 16), (14, 16), (6, 16), (4, 8))
FULL: tuple[Size, ...] = 3 * ((20, 16),) + PAGES + ((5, 16), (3, 16))


@dataclass(frozen=True)
class DocumentStage(Stage):
    """Its `kind` is "vision" (tower, auxiliary loss), "language" (frozen tower) or "joint" (both).

    A step has `rows` visual tokens, in whole pages, at least one.

    Attributes:
        sizes: rows and columns of pages in visual tokens; each step draws one.
        pages: encoded pages of each size, for "language".
        guide: weight of the decoder's auxiliary losses; 0 where layers have been inserted.
    """

    sizes: tuple[Size, ...] = PAGES
    pages: int = 0
    guide: float = 0.0


@dataclass(frozen=True)
class DocumentRecipe(Recipe):
    """The recipe of "draft" or "target".

    Attributes:
        card_pages: pages of each size that the card's accuracy is measured on.
    """

    check_every: int = 200
    card_pages: int = 32


DRAFT = DocumentRecipe(
    "draft",
    shape=architecture.DRAFT,
    stages=(
        DocumentStage("vision", 1000, 768, 2e-3, sizes=STRIPS),
        DocumentStage("vision", 400, 960, 1.5e-3, sizes=MIXED),
        DocumentStage("language", 300, 768, 1.5e-3, sizes=LINES, pages=1500, guide=0.3),
        DocumentStage("language", 250, 1536, 1.2e-3, sizes=PARTS, pages=300, guide=0.3, bf16=True),
        DocumentStage("language", 1400, 2560, 1e-3, sizes=PAGES, pages=400, guide=0.3, bf16=True),
        DocumentStage("joint", 1100, 1920, 6e-4, sizes=FULL, guide=0.3, bf16=True),
        DocumentStage("joint", 700, 2560, 5e-4, sizes=FULL, guide=0.2, bf16=True),
    ),
)
TARGET = DocumentRecipe(
    "target",
    shape=architecture.TARGET,
    stages=(
        # 60 steps at 3e-4 cost four of a hundred words: what is learnt there is easily lost.
        DocumentStage("language", 40, 1280, 1e-5, sizes=PAGES, pages=48, bf16=True),
    ),
    seed=1,
    start="../draft/checkpoint",
)
RECIPES = {"draft": DRAFT, "target": TARGET}
