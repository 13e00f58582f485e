"""`block_attention` in the place of a decoder's own attention, while a run lasts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .block import Block
from .ops import block_attention

PREFIX, CHUNKED = "sooner_block_", "sooner_chunked_block_"

_LOCK = threading.Lock()

Listener = Callable[[nn.Module, "int | None", "int | None"], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def hearing_windows(listener: Listener) -> Iterator[None]:
    """Tell of each layer that attends to a block, in this thread: `(module, window, chunk)`."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


@dataclass
class _Use:
    """Runs that share a config, and what it named before the first of them."""

    config: Any  # kept, so that its id stays its own
    before: str
    runs: int = 0


_USES: dict[int, _Use] = {}
"""By the id of the config; empty while nothing runs."""


@contextmanager
def attending_to_blocks(config: Any) -> Iterator[None]:
    """Let a decoder take blocks until the context ends; then it names what it named before.

    The config names an attention function that runs `block_attention` in forwards that were given
    `**block_arguments(block)`, and otherwise what it named before (`sdpa`, `eager`,
    `flash_attention_2`, or a sparse context's), with the mask that this asks for. So a prompt's
    first chunk, a vision tower and another thread's own decoding are not touched. Runs may overlap.

    Args:
        config: the text config that the decoder's layers read, `adapter.text_config`.
    """
    with _LOCK:
        use = _USES.setdefault(id(config), _Use(config, config._attn_implementation))
        if not use.runs:
            is_chunked = getattr(config, "attention_chunk_size", None) is not None
            config._attn_implementation_internal = _register(use.before, is_chunked)
        use.runs += 1
    try:
        yield
    finally:
        with _LOCK:
            use.runs -= 1
            if not use.runs:
                del _USES[id(config)]
                _restore(config, use.before)


def block_arguments(block: Block) -> dict[str, Any]:
    """Returns arguments of the decoder under `attending_to_blocks`; only shapes change from step to
    step.

    The attention mask is a stand-in: transformers hands a mask of four dimensions on as it is, so
    that nothing is built, and nothing reads it.
    """
    return {"attention_block": block, "attention_mask": block.lengths[None, None, None]}


def _register(before: str, is_chunked: bool) -> str:
    """Returns the name of the functions that stand before those of `before`; each is made once.

    The same function in every run: a compiled decoder need not be compiled again.

    Args:
        is_chunked: some layers of the decoder see chunks of positions (Llama 4).
    """
    name = (CHUNKED if is_chunked else PREFIX) + before
    AttentionInterface.register(name, _attention(before, is_chunked))
    AttentionMaskInterface.register(name, _mask(before))
    return name


def _restore(config: Any, before: str) -> None:
    names = (PREFIX + before, CHUNKED + before)
    if config._attn_implementation in names:
        # A sparse context that ended meanwhile has taken its function with it.
        known = before == "eager" or before in ALL_ATTENTION_FUNCTIONS
        original = _attention(before, False).original
        config._attn_implementation_internal = before if known else original
    if not any(use.before == before for use in _USES.values()):
        for interface in (AttentionInterface, AttentionMaskInterface):
            for name in names:
                interface._global_mapping.pop(name, None)


@lru_cache(maxsize=16)
def _attention(before: str, is_chunked: bool) -> Any:
    """Returns the attention function over that of `before`; see `_register`."""

    def attend(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        attention_block: Block | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if attention_block is None:
            original = _eager_attention(module, before)
            return original(module, query, key, value, attention_mask, **kwargs)
        window, chunk = kwargs.get("sliding_window"), _chunk(module) if is_chunked else None
        if not torch.compiler.is_compiling() and (listener := _LISTENER.get()) is not None:
            listener(module, window, chunk)
        output = block_attention(
            query,
            key,
            value,
            attention_block,
            scaling=kwargs.get("scaling"),
            window=window,
            chunk=chunk,
            softcap=kwargs.get("softcap"),
            sinks=kwargs.get("s_aux"),
        )
        return output.transpose(1, 2).contiguous(), None

    base = ALL_ATTENTION_FUNCTIONS.get(before)
    attend.original = getattr(base, "original", before)  # type: ignore[attr-defined]
    return attend


@lru_cache(maxsize=16)
def _mask(before: str) -> Callable[..., Any]:
    """Returns the mask function of `before`, for forwards without a block."""

    def mask(*args: Any, **kwargs: Any) -> Any:
        return ALL_MASK_ATTENTION_FUNCTIONS[before](*args, **kwargs)

    return mask


def _eager_attention(module: nn.Module, before: str) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """Returns what the config named; `eager` is the modelling file's and not registered."""
    if before == "eager":
        attention = sys.modules[type(module).__module__].eager_attention_forward
    else:
        attention = ALL_ATTENTION_FUNCTIONS[before]
    function: Callable[..., tuple[Tensor, Tensor | None]] = attention
    return function


def _chunk(module: Any) -> int | None:
    """Returns positions of a chunk in a layer of chunked attention, which its arguments
    don't say.
    """
    config = getattr(module, "config", None)
    size = getattr(config, "attention_chunk_size", None)
    kinds = getattr(config, "layer_types", None)
    if size is None or not kinds or kinds[module.layer_idx] != "chunked_attention":
        return None
    return int(size)
