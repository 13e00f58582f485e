"""Pruners that drop visual tokens in several stages: PyramidDrop and SparseVLM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sooner.checks import check_whole, option
from sooner.sparse.modality import keep_count
from sooner.sparse.pruning import Pruner
from sooner.sparse.pruning.stage import PruningStage, Selection, keep_best

DEPTHS = (2, 6, 15)
"""Layers in front of which SparseVLM prunes, of the 32 of its models."""
STAGES = 4
"""PyramidDrop cuts the decoder into four stages of equal depth."""


def instruction(visual: Tensor) -> Tensor:
    """Places of the text behind the last visual token (the last token of all, if there is none).

    A decoder is causal: text in front of a picture has not seen it and can't judge it.
    """
    start = int(visual.nonzero()[-1]) + 1 if bool(visual.any()) else 0
    first = min(start, len(visual) - 1)
    return torch.arange(first, len(visual), device=visual.device)


def check_layers(name: str, layers: tuple[int, ...] | None) -> None:
    """Require layers that tokens can be dropped in front of, numbers of 1 or more.

    Raises:
        SoonerError: names the pruner and the value.
    """
    for layer in layers or ():
        check_whole(f"{name}: layers", layer)


def _stages(layers: tuple[int, ...] | None, count: int, usual: Iterable[int]) -> tuple[int, ...]:
    """Returns the layers of a decoder of `count` that were chosen, or else the usual ones."""
    if layers is not None:
        return tuple(layers)
    return tuple(sorted({max(1, layer) for layer in usual if max(1, layer) < count}))


@dataclass(frozen=True)
class PyramidDrop(Pruner):
    """PyramidDrop (Xing et al. 2024) drops a share of the visual tokens left after each stage.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.name, self.layers)

    def stages(self, layers: int) -> tuple[int, ...]:
        return _stages(self.layers, layers, (layers * part // STAGES for part in range(1, STAGES)))

    def shares(self, layers: int) -> tuple[float, ...]:
        return tuple((1 - self.ratio) ** (number + 1) for number in range(len(self.stages(layers))))

    def keep(self, stage: PruningStage) -> Selection:
        scores = stage.attention(instruction(stage.visual)[-1:])[0]  # [tokens]
        # Counted from the whole prompt, so that rounding does not add up over the stages.
        left = 1 - (1 - self.ratio) ** (stage.number + 1)
        return Selection(keep_best(stage.visual, scores, keep_count(stage.total, left)))


@dataclass(frozen=True)
class SparseVLM(Pruner):
    """SparseVLM (Zhang et al. 2024) prunes guided by the text, and recycles what it prunes.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_layers(self.name, self.layers)

    def stages(self, layers: int) -> tuple[int, ...]:
        return _stages(self.layers, layers, (round(depth * layers / 32) for depth in DEPTHS))

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


def density_peaks(states: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Clusters `states [tokens, hidden]` around `count` of them.

    A centre is dense (its `count` nearest neighbours are near) and far from anything denser.

    Returns:
        The centres, ascending, `[count]`, and for each token which centre it belongs to, `[tokens]`
        in 0 to `count - 1`; a centre belongs to itself.
    """
    states = states.float()
    apart = torch.cdist(states, states) / states.shape[1] ** 0.5  # [tokens, tokens]
    near = apart.topk(min(count, len(states)), largest=False).values
    density = (-(near**2).mean(1)).exp()
    denser = density[None] > density[:, None]
    # The densest token has nothing above it, and is as far as anything can be.
    gap = torch.where(denser, apart, apart.max()).min(1).values
    centres = (gap * density).topk(count).indices.sort().values
    owner = apart[:, centres].argmin(1)
    owner[centres] = torch.arange(count, device=states.device)
    return centres, owner


def cluster_means(states: Tensor, owner: Tensor, count: int) -> Tensor:
    """Returns the mean of the states of each cluster, `[count, hidden]`."""
    sums = states.new_zeros(count, states.shape[1]).index_add_(0, owner, states)
    sizes = torch.bincount(owner, minlength=count).to(states.dtype)
    return sums / sizes[:, None]
