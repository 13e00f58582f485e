"""DyCoke (Tao et al. 2025): merge what stays the same over time, choose again at each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from ...checks import option
from ...engine.cache import SlotLayer
from ..modality import keep_count
from .hooks import Pruner
from .stage import AttentionInputs, PruningStage, Selection, keep_best

WINDOW = 4
"""Frames of a window; its first one stays whole."""


@dataclass(frozen=True)
class DyCoke(Pruner):
    """Merges tokens over time before the decoder, and chooses keys and values anew in decoding.

    Stage 1: in windows of four frames the first stays whole, the second and fourth are compared
    with the frame before, the third with the first, token by token at the same place. The `ratio`
    most similar ones are merged into their twin, which means, as in the released code, that they
    are dropped and the twin stands for both.

    Stage 2: at each generated token the attention of layer `layer` over the visual tokens, averaged
    over heads, says which of them the layers behind attend to; `decode_ratio` of them rest in a
    side store, and come back when the attention pattern turns away from the last token's (cosine
    below `threshold`). Only the share that is attended to changes, so the choice is one gather.

    Args:
        ratio: share of a compared frame's tokens that is merged (stage 1).
        decode_ratio: share of the visual tokens that rests in decoding (stage 2); 0 leaves stage 2
            out, and then every decoding method works, not only token by token.
        layer: the layer, counted from 0, whose attention chooses.
        threshold: similarity of two attention patterns at which the choice stands.

    Raises:
        SoonerError: a value out of range.
    """

    ratio: float = option(0.7, 0, 1)
    decode_ratio: float = option(0.7, 0, 1)
    layer: int = option(3, 0)
    threshold: float = option(0.9, 0, 1)
    name: ClassVar[str] = "DyCoke"

    def stages(self, layers: int) -> tuple[int, ...]:
        return (0,)

    def shares(self, layers: int) -> tuple[float, ...]:
        return (1 - self.ratio * (WINDOW - 1) / WINDOW,)

    def keep(self, stage: PruningStage) -> Selection:
        mask = torch.ones_like(stage.visual)
        for frame, twin in _pairs(stage.frames):
            alike = cosine_similarity(stage.hidden[frame].float(), stage.hidden[twin].float())
            mask[frame] = False
            count = keep_count(len(frame), self.ratio)
            mask[frame[alike.topk(count, largest=False).indices]] = True
        return Selection(mask.nonzero()[:, 0])

    def follows(self, layers: int) -> int | None:
        return min(self.layer, layers - 1) if self.decode_ratio else None

    def follow(self, visual: Tensor) -> DynamicChoice | None:
        count = keep_count(int(visual.sum()), self.decode_ratio)
        if count == int(visual.sum()):
            return None
        return DynamicChoice(visual, count, self.threshold)


def _pairs(frames: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Returns places of each compared frame and of its twin, equally many."""
    numbers = frames.tolist()
    places = {number: (frames == number).nonzero()[:, 0] for number in sorted(set(numbers) - {-1})}
    pairs, order = [], 0
    for number, tokens in places.items():
        order = order + 1 if number - 1 in places else 0  # place in its video
        twin = places.get(number - (2 if order % WINDOW == 2 else 1))
        if order % WINDOW and twin is not None and len(twin) == len(tokens):
            pairs.append((tokens, twin))
    return pairs


class DynamicChoice:
    """Chooses which visual tokens the later layers attend to, for one prompt.

    Args:
        visual: which prompt tokens in the cache came from pixels, `[left]` bool.
        count: how many of them are attended to.
        threshold: cosine of two attention patterns above which the choice stands.
    """

    def __init__(self, visual: Tensor, count: int, threshold: float) -> None:
        self.visual, self.count, self.threshold = visual, count, threshold
        self.last: Tensor | None = None
        self.resting: dict[int, tuple[Tensor, ...]] = {}  # layer -> the whole prompt's stores

    def step(self, layers: list[SlotLayer], seen: AttentionInputs) -> None:
        """Choose by the attention of the newest token, and prepare the layers behind."""
        last = torch.zeros(1, dtype=torch.long, device=seen.hidden.device)
        weights = seen.weights(last)[0, : len(self.visual)]
        pattern = weights[self.visual.to(weights.device)]
        before, self.last = self.last, pattern
        if before is not None and cosine_similarity(pattern, before, 0) >= self.threshold:
            return
        mask = keep_best(self.visual.to(weights.device), weights, self.count)
        # Those layers hold the prompt tokens of the mask, and the generated ones behind them.
        for number in range(seen.module.layer_idx + 1, len(layers)):
            if number not in self.resting:
                self.resting[number] = layers[number].shrink(len(self.visual), len(mask))
            prompt = (states[:, :, mask.to(states.device)] for states in self.resting[number])
            layers[number].fill(*prompt)
