"""`block_attention`, one operator that `torch.compile` and fake tensors see as one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import SoonerError
from . import cpu, reference
from .block import Block

_LIBRARY = torch.library.Library("sooner", "DEF")
# Not `torch.library.custom_op`, whose call takes 14 microseconds more: 24 layers, twice a plain
# step of a small model.
_LIBRARY.define(
    "block_attention(Tensor query, Tensor keys, Tensor values, Tensor lengths, Tensor? sizes, "
    "Tensor? ancestors, Tensor? depths, Tensor? page_table, int written, float scale, int? window, "
    "int? chunk, float? softcap, Tensor? sinks) -> Tensor"
)


def block_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    block: Block,
    *,
    scaling: float | None = None,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
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
        sinks: a score a head that takes its share of the softmax and adds nothing, `[heads]`
            (GPT-OSS).

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
