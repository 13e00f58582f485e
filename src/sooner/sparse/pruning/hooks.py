"""What every pruner is: a context manager that takes tokens out between a decoder's layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ...checks import check_fields
from ...engine.cache import SlotCache
from ...engine.interface import Prompt, cache_of
from ...errors import SoonerError, UnsupportedError
from ...models import Adapter, adapt
from ...models.hooks import AttentionHooks, ForwardHooks
from ..mlp_chunks import replaced
from .stage import AttentionInputs, PruningStage, Selection


class PruningHooks(ForwardHooks):
    """Runs a pruner on one model.

    State belongs to a cache and not to the model, so runs that share the model do not meet, and it
    dies with the cache. A prompt is recognised by its cache being empty.

    Args:
        pruner: what to drop.
        adapter: the model.
    """

    every_thread = True
    cuts_layers = True

    def __init__(self, pruner: Pruner, adapter: Adapter) -> None:
        super().__init__()
        self.pruner, self.adapter = pruner, adapter
        self.decoder, self.depth = adapter.decoder, adapter.layers
        vision = getattr(adapter.config, "vision_config", None)
        self.features = len(getattr(vision, "deepstack_visual_indexes", None) or ())
        self.passages: WeakKeyDictionary[SlotCache, PrunedPrompt] = WeakKeyDictionary()
        self.forwards = ExitStack()  # of layers that take a prompt in chunks

    def install(self) -> None:
        """Hook the decoder, its layers, and the attention that the pruner reads.

        Raises:
            SoonerError: the model is too shallow.
            UnsupportedError: another pruner is at work.
        """
        self.adapter.require_plain_causal(self.pruner.name)
        self.pruner.check_depth(self.depth)
        for other in PruningHooks.installed(self.decoder):
            raise UnsupportedError(
                f"{self.pruner.name} can't prune what {other.pruner.name} already prunes; "
                "leave the other context first"
            )
        self.before(self.decoder, self._enter)
        self.after(self.decoder, self._leave)
        stages = self.pruner.stages(self.depth)
        watched = {number - 1 for number in stages if number}
        for number, layer in enumerate(self.decoder.layers):
            self.before(layer, partial(self._enter_layer, number))
            forward = partial(self._run_in_chunks, layer.forward)
            self.forwards.enter_context(replaced(layer, forward))
            if number < self.features:
                self.after(layer, partial(self._leave_layer, number))
            if number in watched:
                self.after(layer.self_attn, partial(self._attended, number))

    def remove(self) -> None:
        super().remove()
        self.forwards.close()

    def _enter(
        self, module: nn.Module, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[tuple, dict[str, Any]] | None:
        cache = cache_of(kwargs)
        if not isinstance(cache, SlotCache):
            return None  # a prompt that is only being embedded stops here; others fail in layer 0
        if cache.is_empty:
            return args, self._begin(cache, kwargs)
        return None

    def _state(self, kwargs: dict[str, Any]) -> PrunedPrompt | None:
        """Returns the prompt that a forward's cache holds, if it was pruned."""
        cache = cache_of(kwargs)
        return self.passages.get(cache) if isinstance(cache, SlotCache) else None

    def _begin(self, cache: SlotCache, kwargs: dict[str, Any]) -> dict[str, Any]:
        prompt, embeds = cache.prompt, kwargs["inputs_embeds"]
        if prompt is not None and embeds.shape[1] < prompt.width:
            raise UnsupportedError(
                f"{self.pruner.name} came to a request whose prompt is split already; enter the "
                "context before the request"
            )
        if prompt is None or embeds.shape[0] > 1:
            rows = "an unknown number of" if prompt is None else str(embeds.shape[0])
            raise UnsupportedError(
                f"{self.pruner.name} prunes one prompt at a time, but the batch has {rows} rows; "
                "decode them one by one"
            )
        self.adapter.require_plain_causal(self.pruner.name, prompt)
        state = PrunedPrompt(self.pruner, self.depth, cache, prompt, embeds[0])
        self.passages[cache] = state
        cache.is_stacked = False
        # The decoder would add DeepStack features to all visual tokens; some may be gone by then.
        if kwargs.get("deepstack_features"):
            raise UnsupportedError(
                f"{self.pruner.name} drops visual tokens, to which layers of "
                f"{type(self.adapter.model).__name__} add features; leave it out"
            )
        features = kwargs.get("deepstack_visual_embeds")
        if features is not None:
            state.deepstack = list(features)
            kwargs = {**kwargs, "deepstack_visual_embeds": None, "visual_pos_masks": None}
        return kwargs

    def _enter_layer(
        self, number: int, module: nn.Module, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[tuple, dict[str, Any]] | None:
        cache = cache_of(kwargs)
        if not isinstance(cache, SlotCache):
            if cache is None and AttentionHooks.any_in(self.decoder):
                return None  # a search looks at the whole prompt
            raise UnsupportedError(
                f"{self.pruner.name} prunes prompts that sooner prefills; pass "
                "custom_generate=sooner.Autoregressive() or another of its methods, or leave the "
                "context"
            )
        state = self._state(kwargs)
        if state is None:
            return None
        hidden, mask = args[0], kwargs.get("attention_mask")
        if not state.is_over:
            hidden, kwargs = state.enter(number, hidden, kwargs)
            return (hidden, *args[1:]), kwargs
        if mask is None or not cache.slot_layers[number].dropped:
            return None
        # Dropped tokens are at the front, where a mask hides nothing from one row.
        wide = cache.slot_layers[number].get_mask_sizes(hidden.shape[1])[0]
        return args, {**kwargs, "attention_mask": mask[..., -wide:]}

    def _attended(
        self, number: int, module: Any, args: tuple, kwargs: dict[str, Any], output: Any
    ) -> None:
        state = self._state(kwargs)
        if state is None or state.is_over:
            return
        parts = (kwargs["hidden_states"], *kwargs["position_embeddings"])
        if state.seen is not None and not cache_of(kwargs).is_empty:
            before = (state.seen.hidden, *state.seen.rotary)
            parts = tuple(torch.cat(pair, 1) for pair in zip(before, parts, strict=True))
        hidden, *rotary = parts
        keys = state.layers[number].stores[0][:, :, : hidden.shape[1]]
        state.seen = AttentionInputs(module, hidden, (rotary[0], rotary[1]), keys)

    def _run_in_chunks(self, forward: Any, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Runs a layer over so many tokens of a prompt at once as its cache says."""
        state, cache = self._state(kwargs), cache_of(kwargs)
        if state is None or state.is_over or hidden.shape[1] <= cache.chunk:
            return forward(hidden, *args, **kwargs)
        parts, places = [], torch.arange(hidden.shape[1], device=hidden.device)
        for start in range(0, len(places), cache.chunk):
            some, seen = places[start:][: cache.chunk], places[: start + cache.chunk]
            part = _take(kwargs, some, seen)
            if start and part.get("attention_mask") is None:  # at the start the model's own path
                hides = hidden.new_full((len(some), len(seen)), torch.finfo(hidden.dtype).min)
                part["attention_mask"] = hides.triu(1 + start)[None, None]
            cache.set_lengths([state.dropped + start] if start else [])
            parts.append(forward(hidden[:, some], *args, **part))
        cache.set_lengths([])
        return torch.cat(parts, 1)

    def _leave_layer(
        self, number: int, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        state = self._state(kwargs)
        if state is None or number >= len(state.deepstack):
            return None
        return state.add_features(number, output)

    def _leave(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> Any:
        state = self._state(kwargs)
        if state is None or state.is_over:
            return None
        with torch.no_grad():
            output.last_hidden_state = state.leave(output.last_hidden_state)
        return output


def _take(kwargs: dict[str, Any], some: Tensor, seen: Tensor) -> dict[str, Any]:
    """Returns a layer's arguments for some of its tokens, `[tokens]`, which see no others than
    `seen [keys]`; positions stay with their tokens."""
    rotary = [part[:, some.to(part.device)] for part in kwargs["position_embeddings"]]
    kwargs = {**kwargs, "position_embeddings": tuple(rotary)}
    if (mask := kwargs.get("attention_mask")) is not None:
        kwargs["attention_mask"] = mask[:, :, some.to(mask.device)][..., seen.to(mask.device)]
    if (positions := kwargs.get("position_ids")) is not None:
        kwargs["position_ids"] = positions[..., some.to(positions.device)]
    return kwargs


class PrunedPrompt:
    """Which tokens of a prompt are still there, and what the layers must be told of them.

    Args:
        pruner: what to drop.
        depth: layers of the model.
        cache: the prompt's cache, still empty.
        prompt: the prompt, one row.
        embeds: its embeddings, `[width, hidden]`.

    Attributes:
        left: places in the prompt of the tokens that are still there, ascending.
        seen: what the last watched attention was given.
        deepstack: features that the first layers' outputs get, `[visual tokens, hidden]` each.
        is_over: the prompt has left the decoder.
    """

    def __init__(
        self, pruner: Pruner, depth: int, cache: SlotCache, prompt: Prompt, embeds: Tensor
    ) -> None:
        width = prompt.lengths[0]
        self.pruner, self.depth, self.layers = pruner, depth, cache.slot_layers
        self.approximations = cache.approximations
        self.stages = pruner.stages(depth)
        self.visual = prompt.visual[0, :width].to(embeds.device)
        self.total = int(self.visual.sum())
        self.left = torch.arange(width, device=embeds.device)
        self.counts: list[int] = []  # visual tokens behind each stage
        self.seen: AttentionInputs | None = None
        self.deepstack: list[Tensor] = []
        self.is_over = False
        self.memo = pruner.begin(embeds, self.visual) if self.total else None

    @property
    def dropped(self) -> int:
        """Tokens that are gone."""
        return len(self.visual) - len(self.left)

    def enter(
        self, number: int, hidden: Tensor, kwargs: dict[str, Any]
    ) -> tuple[Tensor, dict[str, Any]]:
        """Returns the states and arguments with which layer `number` goes on."""
        if number in self.stages and self.total:
            hidden = self._drop(number, hidden)
        if not self.dropped:
            return hidden, kwargs
        self.layers[number].dropped = self.dropped
        return hidden, _take(kwargs, self.left, self.left)

    def _drop(self, number: int, hidden: Tensor) -> Tensor:
        self._move(hidden.device)
        visual = self.visual[self.left]
        selection = self.pruner.keep(
            PruningStage(
                number=self.stages.index(number),
                depth=self.depth,
                hidden=hidden[0],
                places=self.left,
                visual=visual,
                total=self.total,
                attention=self._attention,
                memo=self.memo,
            )
        )
        self.seen = None
        self.counts.append(int(visual[selection.index].sum()))
        if len(selection.index) == len(self.left):
            return hidden
        self.left = self.left[selection.index]
        return (hidden[0, selection.index] if selection.hidden is None else selection.hidden)[None]

    def _move(self, device: torch.device) -> None:
        """Follow a sharded model to the device of its next layer."""
        if self.left.device != device:
            self.left, self.visual = self.left.to(device), self.visual.to(device)
            self.memo = self.memo.to(device) if isinstance(self.memo, Tensor) else self.memo

    def _attention(self, queries: Tensor) -> Tensor:
        assert self.seen is not None, "no attention comes before the first layer"
        device = self.seen.hidden.device
        return self.seen.weights(queries.to(device)).to(queries.device)

    def add_features(self, number: int, hidden: Tensor) -> Tensor:
        """DeepStack: add the features of layer `number` to the visual tokens that are left."""
        if self.is_over:
            return hidden
        self._move(hidden.device)
        spots = self.visual[self.left]
        order = self.visual.cumsum(0) - 1  # place in the prompt -> number among visual tokens
        features = self.deepstack[number].to(hidden.device, hidden.dtype)
        hidden = hidden.clone()
        hidden[:, spots] += features[order[self.left[spots]]]
        return hidden

    def leave(self, hidden: Tensor) -> Tensor:
        """End the prefill; states at their places in the prompt again, zero where a token is gone.

        Raises:
            SoonerError: nothing is left to read the next token from, which is a bug of the pruner.
        """
        self.is_over = True
        self.seen, self.deepstack, self.memo = None, [], None
        self._move(hidden.device)
        if int(self.left[-1]) != len(self.visual) - 1:
            raise SoonerError(f"{self.pruner.name}: the last prompt token was dropped")
        if not self.dropped:
            return hidden
        counts = " -> ".join(map(str, [self.total, *self.counts]))
        self.approximations.append(f"{self.pruner}: visual tokens {counts}")
        full = hidden.new_zeros(1, len(self.visual), hidden.shape[2])
        full[:, self.left] = hidden
        return full


@dataclass(frozen=True)
class Pruner:
    """Drops visual tokens of a prompt inside the target. The mode is *approximate*.

    `with FastV(ratio=0.9)(model): ...` prunes every prompt that `sooner` prefills with this model
    meanwhile; on exit, and after exceptions, no trace is left. Dropped tokens leave the batch of
    the later layers and have no keys or values there; kept tokens keep their RoPE positions. Works
    with every decoding method, one prompt at a time.

    Subclasses say in front of which layers tokens are dropped, and which ones.

    Raises:
        SoonerError: a field that is out of its range; names the pruner, the field and its value.
    """

    name: ClassVar[str] = ""
    mode: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        check_fields(self, f"{self.name}: ")

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        """Prune on `model` until the block ends.

        Raises:
            SoonerError: the model has too few layers for this pruner.
            UnsupportedError: another pruner is at work on it, or, later, a prompt or a cache that
                can't be pruned.
        """
        with PruningHooks(self, adapt(model)):
            yield

    def stages(self, layers: int) -> tuple[int, ...]:
        """Layers, ascending, in front of which tokens may be dropped; 0 is before the decoder."""
        raise NotImplementedError

    def begin(self, hidden: Tensor, visual: Tensor) -> Any:
        """Look at the embedded prompt, `[tokens, hidden]`; the result is each stage's `memo`."""
        return None

    def keep(self, stage: PruningStage) -> Selection:
        """Choose what goes on."""
        raise NotImplementedError

    def check_depth(self, layers: int) -> None:
        """Refuse a model without the layers that the pruner works on.

        Raises:
            SoonerError: names the pruner, its layers and the model's number of them.
        """
        stages = self.stages(layers)
        if any(layer >= layers for layer in stages) or list(stages) != sorted(set(stages)):
            listed = ", ".join(map(str, stages))
            raise SoonerError(
                f"{self.name}: drops tokens in front of layers {listed}, but the model "
                f"has {layers} layers; choose different ones below that, ascending"
            )

    def __str__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.repr}
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in values.items())})"
