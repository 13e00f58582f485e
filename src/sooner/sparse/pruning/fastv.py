"""FastV (Chen et al. 2024) ranks visual tokens by attention, once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...checks import option
from ..modality import keep_count
from .hooks import Pruner
from .stage import PruningStage, Selection, keep_best


@dataclass(frozen=True)
class FastV(Pruner):
    """Rank visual tokens once, by the attention that the prompt's last token pays them.

    Args:
        ratio: share of the visual tokens that is dropped.
        layer: K: this many layers see all tokens; the ranking is the K-th one's attention,
            averaged over heads.

    Raises:
        SoonerError: a value out of range.
    """

    ratio: float = option(0.9, 0, 1)
    layer: int = option(2, 1)
    name: ClassVar[str] = "FastV"

    def stages(self, layers: int) -> tuple[int, ...]:
        return (self.layer,)

    def keep(self, stage: PruningStage) -> Selection:
        last = stage.places.new_tensor([len(stage.places) - 1])
        scores = stage.attention(last)[0]  # [tokens]
        return Selection(keep_best(stage.visual, scores, keep_count(stage.total, self.ratio)))
