"""The plumbing of `MMInference`: functions in transformers' registries, and hooks beside them."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ...engine.attention.context import original_attention
from ...engine.cache import SlotCache
from ...engine.composition import refusal
from ...engine.interface import Prompt, cache_of
from ...errors import UnsupportedError
from ...models import Adapter
from ...models.base import PROMPT_MASK, refuse_ahead
from ...models.hooks import AttentionCall, ForwardHooks
from ...models.prompt_masks import has_masks
from ..modality import PromptLayout
from ..pruning.hooks import PruningHooks
from ..table import windowed_layers
from .forward_context import SparsePrefill, of_call
from .report import Report

logger = logging.getLogger("sooner")

NAME = "MMInference"
DENSE_ONLY = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Arguments of an attention that patterns say nothing about."""


class PrefillHooks(ForwardHooks):
    """Runs sparse attention on one model.

    The decoder's config names an attention function of this object's own. That function runs the
    model's own attention, with the arguments as they came, unless its thread is inside a prefill of
    this decoder. State belongs to a call: each thread has a stack of those that it is inside of.

    Args:
        adapter: the model.
        start: makes a `SparsePrefill` of a prompt's layouts, and of what embeds it if need be.
        report: told of each prefill.
    """

    every_thread = True

    def __init__(
        self,
        adapter: Adapter,
        start: Callable[[list[PromptLayout], Callable[[], Prompt]], SparsePrefill],
        report: Report,
    ) -> None:
        super().__init__()
        self.adapter, self.start, self.report = adapter, start, report
        self.model, self.decoder = adapter.model, adapter.decoder
        attentions = [layer.self_attn for layer in self.decoder.layers]
        self.numbers = {attention: number for number, attention in enumerate(attentions)}
        self.configs = list({id(a.config): a.config for a in attentions if _asks(a)}.values())
        self.original = adapter.text_config._attn_implementation
        self.name = f"sooner_{id(self):x}_{self.original}"
        self.local = threading.local()
        self.prompts: WeakKeyDictionary[SlotCache, SparsePrefill] = WeakKeyDictionary()  # in chunks

    def install(self) -> None:
        """Register the functions, name them in the config, and hook model and decoder.

        Raises:
            UnsupportedError: another such context is at work; the attention can't be replaced.
        """
        self._refuse()
        attend = partial(_attend, self)
        attend.original = self.original  # type: ignore[attr-defined]  # for the adapter's check
        AttentionInterface.register(self.name, attend)
        AttentionMaskInterface.register(self.name, partial(_mask, self))
        for config in self.configs:
            config._attn_implementation_internal = self.name
        # First of all pre-hooks, so that the stack is right whichever of the others raises.
        self.before(self.model, self._call, first=True)
        self.after(self.model, self._return, always=True)
        self.before(self.decoder, self._enter, first=True)
        self.after(self.decoder, self._leave, always=True)

    def remove(self) -> None:
        """Leave no trace."""
        super().remove()
        for config in self.configs:
            if config._attn_implementation == self.name:
                config._attn_implementation_internal = self.original
        for interface in (AttentionInterface, AttentionMaskInterface):
            interface._global_mapping.pop(self.name, None)

    def _refuse(self) -> None:
        model = type(self.model).__name__
        if hasattr(ALL_ATTENTION_FUNCTIONS.get(self.original), "original"):
            raise UnsupportedError(
                f"{NAME} is at work on this {model} already; leave the other context first"
            )
        if len(self.configs) != 1 or self.configs[0]._attn_implementation != self.original:
            raise UnsupportedError(
                f"{model} does not take its attention from transformers' AttentionInterface, so "
                f"{NAME} can't replace it; leave the context out"
            )
        if len(windowed_layers(self.adapter)) == self.adapter.layers:
            raise UnsupportedError(
                f"all layers of {model} see windows or chunks, so none can be sparse; leave {NAME} "
                "out"
            )

    def _left(self, cache: SlotCache) -> Tensor | None:
        """Returns slots of the tokens that a pruner has left of the prompt, if one is at work."""
        for pruning in PruningHooks.installed(self.decoder):
            if (pruned := pruning.passages.get(cache)) is not None:
                return pruned.left
        return None

    @property
    def passages(self) -> list[SparsePrefill | None]:
        """Returns this thread's forwards of the decoder; `None` stands for no prefill."""
        return self.local.__dict__.setdefault("passages", [])

    @property
    def state(self) -> SparsePrefill | None:
        """The prefill that this thread is in."""
        return self.passages[-1] if self.passages else None

    def _call(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        self.local.call = {"input_ids": args[0], **kwargs} if args else kwargs

    def _return(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        self.local.call = None

    def _enter(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        self.passages.append(None)
        if len(self.passages) > 1:  # a search on the prompt that is about to be prefilled
            return
        cache = cache_of(kwargs)
        if isinstance(cache, SlotCache) and cache.is_prefilling and not cache.is_empty:
            self.passages[-1] = self.prompts.get(cache)
            return
        layouts = self._layouts(cache)
        if layouts is None:
            return
        if not isinstance(cache, SlotCache) and has_masks(kwargs.get("attention_mask")):
            raise refuse_ahead(NAME, self.model)
        state = self.start(layouts, partial(self._embed, cache))
        if isinstance(cache, SlotCache):
            state.left, width = partial(self._left, cache), len(layouts[0])
            state.is_cut = cache.chunk < width
            if state.is_cut and state.needs_whole:
                raise refusal("dynamic", "chunked", width=width, chunk=cache.chunk)
        self.passages[-1] = state

    def _layouts(self, cache: Any) -> list[PromptLayout] | None:
        """Returns the layout of the prompt that enters the decoder, if nothing precedes it."""
        if isinstance(cache, SlotCache):
            if not cache.is_empty or cache.prompt is None:
                return None
            if PROMPT_MASK in cache.prompt.extras:
                raise refuse_ahead(NAME, self.model)
            prompt = cache.prompt
            return [PromptLayout.of(prompt, row) for row in range(prompt.rows)]
        call: Mapping[str, Any] | None = getattr(self.local, "call", None)
        if call is None or torch.is_grad_enabled():
            return None
        is_first = cache is None or not cache.get_seq_length()
        return of_call(self.adapter, call) if is_first else None

    def _embed(self, cache: Any) -> Prompt:
        """Returns the prompt that enters the decoder, embedded."""
        if isinstance(cache, SlotCache):
            assert cache.prompt is not None
            return cache.prompt
        call = {name: value for name, value in self.local.call.items() if value is not None}
        call.pop("past_key_values", None)
        return self.adapter.embed_prompt(call)

    def _leave(self, module: nn.Module, args: tuple, kwargs: dict[str, Any], output: Any) -> None:
        state, cache = self.passages.pop(), cache_of(kwargs)
        if isinstance(cache, SlotCache):
            self.prompts.pop(cache, None)
        if state is None or output is None or not state.reports:
            return
        report = state.report()
        if isinstance(cache, SlotCache):
            if not report.is_exact:  # each chunk says it again, and more of it
                other = [text for text in cache.approximations if not text.startswith(NAME)]
                cache.approximations[:] = [*other, f"{NAME}: {report}"]
            if cache.longest + kwargs["inputs_embeds"].shape[1] < len(state.layouts[0]):
                self.prompts[cache] = state  # other chunks follow
                return
        self.report.prefills.append(report)
        logger.info("%s: %s", NAME, report)


def _asks(attention: Any) -> bool:
    """Returns whether an attention module asks the registry for its function."""
    has_config = hasattr(attention, "config")
    return has_config and hasattr(
        sys.modules[type(attention).__module__], "ALL_ATTENTION_FUNCTIONS"
    )


def _attend(
    hooks: PrefillHooks,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Returns attention, as transformers calls it: `query [rows, heads, entries, head_dim]`."""
    state, layer = hooks.state, hooks.numbers.get(module)
    fallback = partial(
        original_attention(module, hooks.original),
        module,
        query,
        key,
        value,
        attention_mask,
        **kwargs,
    )
    if state is not None and layer is not None:
        reason = state.reason(layer) or _obstacle(state, layer, query, key, kwargs)
        if not reason:
            scale = kwargs.get("scaling") or query.shape[-1] ** -0.5
            return state.attend(layer, AttentionCall(query, key, value, scale), fallback)
        state.leave(layer, reason)
    return fallback()


def _obstacle(
    state: SparsePrefill, layer: int, query: Tensor, key: Tensor, kwargs: dict[str, Any]
) -> str:
    """Returns why this call can't be sparse although its pattern is, or nothing."""
    if options := [name for name in DENSE_ONLY if kwargs.get(name) is not None]:
        return f"its attention has {options[0]}"
    if query.shape[1] != len(state.table.layers[layer]):
        return f"{query.shape[1]} heads, not {len(state.table.layers[layer])}"
    least = 1 if state.is_cut else state.width
    if not least <= query.shape[2] <= key.shape[2] <= state.width:
        return f"{query.shape[2]} queries and {key.shape[2]} keys for {state.width} tokens"
    return ""


def _mask(hooks: PrefillHooks, **kwargs: Any) -> Any:
    """Returns the model's own mask, of `tokens^2` bytes; none where no layer would look at it."""
    state = hooks.state
    if state is not None and state.is_sparse:
        return None
    return ALL_MASK_ATTENTION_FUNCTIONS[hooks.original](**kwargs)
