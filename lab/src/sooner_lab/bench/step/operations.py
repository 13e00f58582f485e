"""What a step launches and moves: operations, and the bytes that each must read and write.

Bytes are the least that an operation can move: every element of its arguments once (an expanded
axis counts once), every element of its result once; of what is gathered or scattered, only what is
asked for. Attention counts as one fused operation. On fake tensors nothing is computed, so a 7B
model at any length takes seconds and no memory.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from .guard import StepMode, tensors

BytesOf = Callable[[tuple[Any, ...], dict[str, Any], Any], int]
"""Bytes moved by one call: `(arguments, keyword arguments, result) -> bytes`."""

ATTENTION = "aten::scaled_dot_product_attention"

NO_KERNEL = frozenset(
    {"aten::_unsafe_view", "aten::empty", "aten::empty_like", "aten::empty_strided",
     "aten::new_empty", "aten::new_empty_strided", "aten::lift_fresh", "aten::detach",
     "aten::detach_", "aten::is_pinned"}
)  # fmt: skip
"""Operations that launch nothing, beside views."""


class Operations(StepMode):
    """Counts the operations of what runs under it, and the bytes that they move.

    Args:
        declared: bytes of further operations by name, such as `"sooner::attention"`, which knows
            how many of its slots it reads.

    Attributes:
        launched: calls that launch a kernel, by operation.
        views: calls that only make another view.
        nbytes: bytes moved, by operation.
    """

    def __init__(self, declared: Mapping[str, BytesOf] | None = None) -> None:
        super().__init__()
        self.declared = {**BYTES, **(declared or {})}
        self.launched: Counter[str] = Counter()
        self.views: Counter[str] = Counter()
        self.nbytes: Counter[str] = Counter()
        self._attention = _FusedAttention(self)

    def __enter__(self) -> Operations:
        self._attention.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._attention.__exit__(*error)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        name = func.overloadpacket._qualified_op_name
        if func.is_view or name in NO_KERNEL:
            self.views[name] += 1
        else:
            self.add(name, self.declared.get(name, all_bytes)(args, kwargs, result))
        return result

    def add(self, name: str, nbytes: int) -> None:
        """Count one operation."""
        self.launched[name] += 1
        self.nbytes[name] += nbytes


class _FusedAttention(TorchFunctionMode):
    """On fake tensors, where transformers' attention would fall apart into the operations of its
    reference, lets it be the one kernel that a GPU has for it."""

    def __init__(self, operations: Operations) -> None:
        self.operations = operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention or not isinstance(args[0], FakeTensor):
            return func(*args, **kwargs)
        query, value = args[0], args[2]
        rows, heads, entries = query.shape[:3]
        # As kernels lay it out, so that the states go on without a copy.
        result = query.new_empty(rows, entries, heads, value.shape[-1]).transpose(1, 2)
        self.operations.add(ATTENTION, all_bytes(args, kwargs, result))
        return result


def touched(tensor: Tensor) -> int:
    """Bytes of a tensor's elements; an axis that was expanded counts once."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.element_size() * math.prod(size for size, stride in pairs if stride or not size)


def all_bytes(args: Any, kwargs: Any, result: Any) -> int:
    """Every argument read once, every result written once."""
    return sum(touched(tensor) for tensor in tensors((args, kwargs, result)))


def _picked(args: Any, kwargs: Any, result: Any) -> int:
    """What is picked out, read and written, and the indices."""
    return 2 * touched(result) + sum(touched(tensor) for tensor in tensors((args[1:], kwargs)))


def _scattered(args: Any, kwargs: Any, result: Any) -> int:
    """What is written, read from its source, and the indices; not the whole store."""
    index, *source = args[2:4]
    read = sum(touched(tensor) for tensor in tensors(source))
    return index.numel() * args[0].element_size() + read + touched(index)


def _put(args: Any, kwargs: Any, result: Any) -> int:
    """As `_scattered`, of indices of several axes, of which there are as many as broadcast."""
    store, indices = args[0], list(tensors(args[1]))
    count = math.prod(torch.broadcast_shapes(*[tensor.shape for tensor in indices]))
    for axis, size in enumerate(store.shape):
        if axis >= len(args[1]) or args[1][axis] is None:
            count *= size
    read = touched(args[2]) + sum(touched(tensor) for tensor in indices)
    return int(count * store.element_size() + read)


def _made(args: Any, kwargs: Any, result: Any) -> int:
    """A tensor that is written alone; the one that it is like is not read."""
    return touched(result)


def _named(move: BytesOf, *names: str) -> dict[str, BytesOf]:
    return {f"aten::{name}": move for name in names}


BYTES: dict[str, BytesOf] = {
    **_named(_picked, "gather", "index_select", "index", "embedding"),
    **_named(_scattered, "scatter", "scatter_", "scatter_add_", "index_copy_", "index_add_"),
    **_named(_put, "index_put_", "index_put", "_index_put_impl_"),
    **_named(lambda args, kwargs, result: touched(args[0]) + touched(args[1]), "copy_"),
    **_named(
        _made, "fill_", "zero_", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones",
        "new_full", "rand_like",
    ),
}  # fmt: skip
"""Operations that do not move every element of their arguments and results once."""
