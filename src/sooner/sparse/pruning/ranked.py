"""FastV (Chen et al. 2024) and PyramidDrop (Xing et al. 2024) rank visual tokens by attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...checks import option
from ..modality import keep_count
from .hooks import Pruner
from .stage import PruningStage, Selection, instruction, keep_best

STAGES = 4
"""The paper cuts the decoder into four stages of equal depth."""


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

    def shares(self, layers: int) -> tuple[float, ...]:
        return (1 - self.ratio,)

    def keep(self, stage: PruningStage) -> Selection:
        last = stage.places.new_tensor([len(stage.places) - 1])
        scores = stage.attention(last)[0]  # [tokens]
        return Selection(keep_best(stage.visual, scores, keep_count(stage.total, self.ratio)))


@dataclass(frozen=True)
class PyramidDrop(Pruner):
    """At the end of each stage, drop a share of the visual tokens that are left.

    They are ranked by the attention of the last instruction token in the stage's last layer,
    averaged over heads.

    Args:
        ratio: share that is dropped at each stage (the paper's 1 - lambda).
        layers: layers in front of which a drop happens; `None` is after every quarter.

    Raises:
        SoonerError: a value out of range.
    """

    ratio: float = option(0.5, 0, 1)
    layers: tuple[int, ...] | None = None
    name: ClassVar[str] = "PyramidDrop"

    def stages(self, layers: int) -> tuple[int, ...]:
        if self.layers is not None:
            return tuple(self.layers)
        cuts = {max(1, layers * part // STAGES) for part in range(1, STAGES)}
        return tuple(sorted(cut for cut in cuts if cut < layers))

    def shares(self, layers: int) -> tuple[float, ...]:
        return tuple((1 - self.ratio) ** (number + 1) for number in range(len(self.stages(layers))))

    def keep(self, stage: PruningStage) -> Selection:
        scores = stage.attention(instruction(stage.visual)[-1:])[0]  # [tokens]
        # Counted from the whole prompt, so that rounding does not add up over the stages.
        left = 1 - (1 - self.ratio) ** (stage.number + 1)
        return Selection(keep_best(stage.visual, scores, keep_count(stage.total, left)))
