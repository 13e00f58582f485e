"""`block_attention`, one operator, in the place of a decoder's own attention while a run lasts."""

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

from ...errors import SoonerError
from . import cpu, reference
from .block import Block

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
    """Returns the decoder's arguments under `attending_to_blocks`; only shapes change by step.

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
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any,
        attention_block: Block | None = None, **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        if attention_block is None:
            original = original_attention(module, before)
            result: tuple[Tensor, Tensor | None] = original(
                module, query, key, value, attention_mask, **kwargs
            )
            return result
        window, chunk = kwargs.get("sliding_window"), _chunk(module) if is_chunked else None
        if not torch.compiler.is_compiling() and (listener := _LISTENER.get()) is not None:
            listener(module, window, chunk)
        output = block_attention(
            query, key, value, attention_block, scaling=kwargs.get("scaling"), window=window,
            chunk=chunk, softcap=kwargs.get("softcap"), sinks=kwargs.get("s_aux"),
        )  # fmt: skip
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


def original_attention(module: nn.Module, before: str) -> Any:
    """Returns what the config named; `eager` is the modelling file's and not registered."""
    if before == "eager":
        return sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[before]


def _chunk(module: Any) -> int | None:
    """Returns positions of a chunk in a layer of chunked attention; `None` in other layers."""
    config = getattr(module, "config", None)
    size = getattr(config, "attention_chunk_size", None)
    kinds = getattr(config, "layer_types", None)
    if size is None or not kinds or kinds[module.layer_idx] != "chunked_attention":
        return None
    return int(size)


_LIBRARY = torch.library.Library("sooner", "DEF")
# Not `torch.library.custom_op`, whose call takes 14 microseconds more: 24 layers, twice a plain
# step of a small model.
_LIBRARY.define(
    "block_attention(Tensor query, Tensor keys, Tensor values, Tensor lengths, Tensor? sizes, "
    "Tensor? ancestors, Tensor? depths, Tensor? page_table, int written, float scale, int? window, "
    "int? chunk, float? softcap, Tensor? sinks) -> Tensor"
)


def block_attention(
    query: Tensor, keys: Tensor, values: Tensor, block: Block, *, scaling: float | None = None,
    window: int | None = None, chunk: int | None = None, softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns attention of each row's block over its committed slots and over the block.

    Keys and values of the block are in the stores already, behind the committed ones. Neither
    lengths nor anything else is read from a GPU; nothing depends on what lies in unseen slots.

    Args:
        query: `[rows, heads, entries, dim]`, of the entries behind those that were written before;
            query head `h` reads key head `h // group`.
        keys, values: `[rows, kv_heads, capacity, dim]`, or pages, `[pages, kv_heads, PAGE, dim]`.
            Any strides, but `dim` is contiguous.
        block: lengths, ancestors and depths of the entries.
        scaling: factor of the scores; `None` is `dim ** -0.5`.
        window: sliding window in positions: an entry sees those greater than its own less `window`.
        chunk: size of position chunks (Llama 4): an entry sees those of its own chunk.
        softcap: scores become `softcap * tanh(scores / softcap)` (Gemma 2).
        sinks: a score a head with a share of the softmax that adds nothing, `[heads]` (GPT-OSS).

    Returns:
        `[rows, heads, entries, dim]`, in memory `[rows, entries, heads, dim]`. An entry that sees
        nothing gets zeros or, on CPUs, something finite.

    Raises:
        SoonerError: shapes that don't fit each other.
    """
    if query.shape[1] % keys.shape[1] or keys.shape != values.shape:
        raise SoonerError(
            f"{query.shape[1]} query heads do not fit keys of shape {list(keys.shape)} and values "
            f"of shape {list(values.shape)}; hand over [rows, kv_heads, capacity, dim] of both"
        )
    if block.ancestors is None and block.written:
        raise SoonerError(
            f"a chain behind {block.written} entries written before; count them in its lengths"
        )
    if block.ancestors is not None and block.ancestors.shape[1] != query.shape[2]:
        raise SoonerError(
            f"a block of {query.shape[2]} entries does not fit the ancestors of "
            f"{block.ancestors.shape[1]}; a tree's entries are its root and its nodes"
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output: Tensor = torch.ops.sooner.block_attention.default(
        query, keys, values, *block, scale, window, chunk, softcap, sinks
    )
    return output


def _fake(query: Tensor, *_: object) -> Tensor:
    rows, heads, entries, dim = query.shape
    return query.new_empty(rows, entries, heads, dim).transpose(1, 2)


def _split(*operands: object) -> tuple[Any, ...]:
    """Returns the operator's arguments with those of its block in one."""
    return (*operands[:3], Block(*operands[3:9]), *operands[9:])  # type: ignore[arg-type]


def _reference(*operands: object) -> Tensor:
    output = reference.attend(*_split(*operands))
    return output.transpose(1, 2).contiguous().transpose(1, 2)


def _on_cpu(*operands: object) -> Tensor:
    return cpu.attend(*_split(*operands))


def _on_cuda(*operands: object) -> Tensor:
    from . import kernel  # imports Triton

    arguments = _split(*operands)
    is_ours = kernel.supports(arguments[0], arguments[3])
    return kernel.attend(*arguments) if is_ours else _reference(*operands)


torch.library.register_fake("sooner::block_attention", _fake, lib=_LIBRARY)
_LIBRARY.impl("block_attention", _reference, "CompositeExplicitAutograd")
_LIBRARY.impl("block_attention", _on_cpu, "CPU")
_LIBRARY.impl("block_attention", _on_cuda, "CUDA")
