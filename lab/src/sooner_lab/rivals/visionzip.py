"""VisionZip (Yang et al. 2024): the vision tower itself knows which of its tokens matter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from sooner.checks import option
from sooner.models import adapt
from sooner.sparse.pruning.hooks import Pruner
from sooner.sparse.pruning.stage import PruningStage, Selection, cluster_means

from .towers import Gaze, TowerHooks, watch


@dataclass(frozen=True)
class VisionZip(Pruner):
    """Keep a few visual tokens of each frame and merge its others, before the decoder.

    *Dominant* tokens get the most attention in the vision tower, from all its tokens on average,
    as these towers have no CLS token. Of the rest, evenly spaced ones become *contextual*: each
    takes the mean of itself and of those whose tower keys are nearest to its own (cosine).

    A frame is a video frame (a temporal group of Qwen-VL), an image, or a tile of one. Frames of
    no more than `dominant + contextual` tokens stay whole, newlines always stay. Where patches are
    pooled or merged on their way to the decoder, their attention and keys are averaged likewise.

    Merging happens behind the projector, on the decoder's embeddings, as in the authors' version
    for Qwen2.5-VL. DeepStack features of merged tokens are dropped with them.

    Args:
        dominant: tokens of a frame that are kept (MMInference, table 2: 54).
        contextual: tokens of a frame that the rest is merged into (10).

    Raises:
        SoonerError: not whole numbers, dominant of 0 or more and contextual of 1 or more.
    """

    dominant: int = option(54, 0)
    contextual: int = option(10, 1)
    name: ClassVar[str] = "VisionZip"

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        """Compress every prompt of `model` until the block ends.

        Raises:
            UnsupportedError: a family whose vision tower is not known; see also `Pruner`.
        """
        watched = watch(adapt(model))
        at_work = _AtWork(self.dominant, self.contextual, watched)
        with watched, Pruner.__call__(at_work, model):
            yield

    def stages(self, layers: int) -> tuple[int, ...]:
        return (0,)


@dataclass(frozen=True)
class _AtWork(VisionZip):
    """A `VisionZip` on one model, whose tower is watched."""

    watched: TowerHooks | None = field(default=None, repr=False)

    def begin(self, hidden: Tensor, visual: Tensor) -> Gaze:
        assert self.watched is not None
        return self.watched.of_prompt(int(visual.sum()))

    def keep(self, stage: PruningStage) -> Selection:
        gaze = stage.memo.to(stage.hidden.device)
        places = stage.visual.nonzero()[:, 0]
        mask, hidden = torch.ones_like(stage.visual), stage.hidden.clone()
        for unit in range(int(gaze.units.max()) + 1):
            members = (gaze.units == unit).nonzero()[:, 0]  # among the visual tokens
            if len(members) <= self.dominant + self.contextual:
                continue
            chosen, centres, means = zipped(
                gaze.scores[members], gaze.keys[members], hidden[places[members]], self.dominant,
                self.contextual,
            )  # fmt: skip
            mask[places[members]] = False
            mask[places[members[chosen]]] = True
            mask[places[members[centres]]] = True
            hidden[places[members[centres]]] = means
        index = mask.nonzero()[:, 0]
        return Selection(index, hidden[index])


def zipped(
    scores: Tensor, keys: Tensor, states: Tensor, dominant: int, contextual: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Compress one frame (VisionZip, sections 3.2 and 3.3).

    Args:
        scores: attention that each token gets, `[tokens]`.
        keys: tower keys, `[tokens, head_dim]`.
        states: what is merged, `[tokens, hidden]`.
        dominant, contextual: together fewer than `tokens`.

    Returns:
        The dominant tokens `[dominant]`, the contextual ones `[contextual]`, and what the latter
        become, `[contextual, hidden]`.
    """
    chosen = scores.topk(dominant).indices
    is_rest = torch.ones_like(scores, dtype=torch.bool)
    is_rest[chosen] = False
    rest = is_rest.nonzero()[:, 0]
    numbers = torch.arange(contextual, device=rest.device)
    places = numbers * (len(rest) // contextual)
    centres = rest[places]
    directions = normalize(keys, dim=-1)
    owner = (directions[rest] @ directions[centres].T).argmax(1)
    owner[places] = numbers  # a centre belongs to itself, whatever its twin
    means = cluster_means(states[rest].float(), owner, contextual)
    return chosen, centres, means.to(states.dtype)
