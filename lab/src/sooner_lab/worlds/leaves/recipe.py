"""How the transformer of the world of leaves is trained, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..recipes import PlainStage


@dataclass(frozen=True)
class LeafShape:
    """Of a Llama decoder.

    Attributes:
        rope_base: RoPE knows a raster only as a line. Frequency i of a head of 32 has the period
            2 pi base^(i / 16); 146 gives i = 3 the period 16, one row of codes.
    """

    layers: int = 6
    width: int = 256
    heads: int = 8
    intermediate: int = 704
    rope_base: float = 146.0


@dataclass(frozen=True)
class LeafStage(PlainStage):
    """`rows`: pictures a step."""

    kind: Literal["draw"] = "draw"
    bf16: bool = True


@dataclass(frozen=True)
class LeafRecipe:
    """All that determines a training run, but for the machine's rounding.

    Attributes:
        fitted: pictures that the codes are found on.
        others: as in `marks.recipe.MarkRecipe`.
    """

    shape: LeafShape = LeafShape()
    stages: tuple[LeafStage, ...] = (LeafStage(2400, 16, 1.5e-3),)
    fitted: int = 1024
    seed: int = 250
    save_every: int = 100
    check_every: int = 400


RECIPES = {"target": LeafRecipe()}
