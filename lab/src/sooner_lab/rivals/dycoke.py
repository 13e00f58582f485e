"""DyCoke (Tao et al. 2025): merge what stays the same over time, choose again at each token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from sooner.checks import option
from sooner.engine.cache import SlotCache, SlotLayer
from sooner.engine.interface import cache_of
from sooner.errors import UnsupportedError
from sooner.models import Adapter, adapt
from sooner.sparse.modality import keep_count
from sooner.sparse.pruning.hooks import Pruner, PruningHooks
from sooner.sparse.pruning.stage import AttentionInputs, PruningStage, Selection, keep_best

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

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        """Prune on `model` until the block ends.

        Raises:
            UnsupportedError: as `Pruner`; with stage 2 also a method that drafts, or paged memory.
        """
        hooks = ChoosingHooks if self.decode_ratio else PruningHooks
        with hooks(self, adapt(model)):
            yield

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

    def watched(self, layers: int) -> int:
        """Returns the layer whose attention chooses, of a model of so many layers."""
        return min(self.layer, layers - 1)


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
                self.resting[number] = shrink(layers[number], len(self.visual), len(mask))
            prompt = (states[:, :, mask.to(states.device)] for states in self.resting[number])
            layers[number].fill(*prompt)


def shrink(layer: SlotLayer, whole: int, room: int) -> tuple[Tensor, ...]:
    """Keep `room` of a layer's slots of the `whole` first tokens, and what lies behind them.

    The `room` slots are to be written by `fill`. Returns keys and values of the `whole` tokens as
    they were, `[rows, kv_heads, whole, dim]`.
    """
    prompt = tuple(store[:, :, :whole].clone() for store in layer.stores)
    tail = layer.owner.longest - layer.dropped - whole
    capacity = layer.owner.capacity + 1 - layer.dropped - whole + room
    small = []
    for store in layer.stores:
        new = store.new_zeros(*store.shape[:2], capacity, store.shape[3])
        new[:, :, room : room + tail] = store[:, :, whole : whole + tail]
        small.append(new)
    layer.owner.separate()
    layer.hold(tuple(small), len(small[0]))
    layer.dropped += whole - room
    return prompt


class ChoosingHooks(PruningHooks):
    """Runs both stages on one model: what the second one chose belongs to the prompt's cache."""

    def __init__(self, pruner: DyCoke, adapter: Adapter) -> None:
        super().__init__(pruner, adapter)
        self.dycoke, self.watched = pruner, pruner.watched(self.depth)
        self.choices: WeakKeyDictionary[SlotCache, DynamicChoice] = WeakKeyDictionary()

    def install(self) -> None:
        """Hook what stage 1 needs, and the attention that chooses; raises as `PruningHooks`."""
        super().install()
        self.after(self.decoder.layers[self.watched].self_attn, self._choose)

    def _enter(
        self, module: nn.Module, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[tuple, dict[str, Any]] | None:
        cache = cache_of(kwargs)
        if isinstance(cache, SlotCache) and not cache.is_empty and cache in self.choices:
            entries = kwargs["inputs_embeds"].shape[1]
            if entries > 1:
                raise UnsupportedError(
                    f"DyCoke chooses anew for each token and can't take {entries} at once; decode "
                    "with sooner.Autoregressive(), or set decode_ratio=0"
                )
        return super()._enter(module, args, kwargs)

    def _begin(self, cache: SlotCache, kwargs: dict[str, Any]) -> dict[str, Any]:
        kwargs = super()._begin(cache, kwargs)
        cache.needs_masks = True
        self.choices.pop(cache, None)
        return kwargs

    def _leave(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> Any:
        state, cache = self._state(kwargs), cache_of(kwargs)
        if state is None or state.is_over or not isinstance(cache, SlotCache):
            return None
        output = super()._leave(module, args, kwargs, output)
        visual = state.visual[state.left]
        total = int(visual.sum())
        count = keep_count(total, self.dycoke.decode_ratio)
        if count < total:
            self.choices[cache] = DynamicChoice(visual, count, self.dycoke.threshold)
            if not state.dropped:
                state.approximations.append(f"{self.dycoke}: visual tokens {state.total}")
        return output

    def _choose(self, module: Any, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        state, cache = self._state(kwargs), cache_of(kwargs)
        choice = self.choices.get(cache) if isinstance(cache, SlotCache) else None
        if state is None or choice is None:
            return
        layer = state.layers[self.watched]
        keys = layer.stores[0][:, :, : layer.get_mask_sizes(1)[0]]
        rotary = kwargs["position_embeddings"]
        choice.step(state.layers, AttentionInputs(module, kwargs["hidden_states"], rotary, keys))
