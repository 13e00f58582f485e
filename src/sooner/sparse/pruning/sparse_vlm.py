"""SparseVLM (Zhang et al. 2024): words that fit the picture rate its tokens; pruned ones merge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...checks import option
from ..modality import keep_count
from .hooks import Pruner
from .stage import PruningStage, Selection, cluster_means, density_peaks, instruction, keep_best

DEPTHS = (2, 6, 15)
"""Layers in front of which the paper prunes, of the 32 of its models."""


@dataclass(frozen=True)
class SparseVLM(Pruner):
    """Prunes progressively, guided by the text, and recycles what it prunes.

    *Raters* are chosen once, from the embedded prompt: words of the instruction whose affinity with
    the picture, `mean_v softmax_words(H_v H_q^T)`, is above the mean. At each stage visual tokens
    are scored by the raters' mean attention. Some of the budget goes to tokens merged from the best
    of those pruned: clustered by density peaks, each cluster's mean takes its centre's place.

    Differs from the paper: tokens fall geometrically from stage to stage to a fixed share (its
    released code has fixed tables too, its text a rank of the attention map), clusters are averaged
    and not summed, and merged tokens count as kept, so that `ratio` means what it says.

    Args:
        ratio: share of the visual tokens that is gone behind the last stage, merged ones kept.
        layers: layers in front of which a stage lies; `None` is the paper's three, scaled.
        recycle: share of each stage's budget that goes to merged tokens; 0 merges none.
        pool: share of the pruned tokens, the best ones, from which they are merged (the paper's
            tau).

    Raises:
        SoonerError: a value out of range.
    """

    ratio: float = option(0.9, 0, 1)
    layers: tuple[int, ...] | None = None
    recycle: float = option(0.1, 0, 1)
    pool: float = option(0.3, 0, 1)
    name: ClassVar[str] = "SparseVLM"

    def stages(self, layers: int) -> tuple[int, ...]:
        if self.layers is not None:
            return tuple(self.layers)
        scaled = {max(1, round(depth * layers / 32)) for depth in DEPTHS}
        return tuple(sorted(layer for layer in scaled if layer < layers))

    def shares(self, layers: int) -> tuple[float, ...]:
        count = len(self.stages(layers))
        return tuple((1 - self.ratio) ** ((number + 1) / count) for number in range(count))

    def begin(self, hidden: Tensor, visual: Tensor) -> Tensor:
        """Returns places of the raters, `[raters]`."""
        words = instruction(visual)
        affinity = hidden[visual].float() @ hidden[words].float().T  # [visual, words]
        share = affinity.softmax(1).mean(0)
        raters = words[share > share.mean()]
        return raters if len(raters) else words  # all alike: none stands out

    def keep(self, stage: PruningStage) -> Selection:
        raters = torch.searchsorted(stage.places, stage.memo)  # text is never dropped
        scores = stage.attention(raters).mean(0)  # [tokens]
        # The best visual tokens stay, and some are merged from the best of the others.
        budget = keep_count(stage.total, 1 - self.shares(stage.depth)[stage.number])
        left = int(stage.visual.sum()) - budget
        merged = min(round(budget * self.recycle), round(left * self.pool), budget - 1)
        mask = keep_best(stage.visual, scores, budget - merged)
        if left <= 0 or merged <= 0:
            return Selection(mask)
        pruned = torch.ones_like(stage.visual)
        pruned[mask] = False
        losers = pruned.nonzero()[:, 0]
        best = scores[losers].topk(max(merged, round(len(losers) * self.pool))).indices
        losers = losers[best.sort().values]  # ascending places
        centres, owner = density_peaks(stage.hidden[losers], merged)
        hidden = stage.hidden.clone()
        hidden[losers[centres]] = cluster_means(stage.hidden[losers], owner, merged)
        index = torch.cat([mask, losers[centres]]).sort().values
        return Selection(index, hidden[index])
