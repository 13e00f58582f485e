"""FastV (Chen et al. 2024): after layer K, half or more of the image is worth nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..modality import keep_count
from .base import Pruner, check_layer, check_share
from .keep import keep_best
from .stage import PruningStage, Selection


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

    ratio: float = 0.9
    layer: int = 2
    name: ClassVar[str] = "FastV"

    def __post_init__(self) -> None:
        check_share(self, "ratio")
        check_layer(self, "layer", self.layer)

    def stages(self, layers: int) -> tuple[int, ...]:
        return (self.layer,)

    def shares(self, layers: int) -> tuple[float, ...]:
        return (1 - self.ratio,)

    def keep(self, stage: PruningStage) -> Selection:
        last = stage.places.new_tensor([len(stage.places) - 1])
        scores = stage.attention(last)[0]  # [tokens]
        return Selection(keep_best(stage.visual, scores, keep_count(stage.total, self.ratio)))
