"""What makes the host wait for the device, seen in one dispatched operation.

On CUDA these block the host, or copy from pageable memory, which blocks too: reading a value, a
shape that depends on values, copies between devices, indices that live on the host, and tensors
made of Python values. `FakeTensorMode` alone lets uploads, `.cpu()` and `x[list]` pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter
from transformers import __file__ as _transformers

aten = torch.ops.aten

READ, UPLOAD, HOST_TENSOR, PIN = "read", "upload", "host tensor", "pin"
"""Kinds: the host reads; the host sends; a tensor is made of Python values; memory is pinned."""

HIDDEN = {aten.multinomial.default: "checks its weights on the host (twice)"}
"""Operations whose CUDA kernels read values on the host, which no tag says."""

INDEXING = frozenset(
    {aten.index.Tensor, aten.index_put.default, aten.index_put_.default,
     aten._index_put_impl_.default, aten._unsafe_index.Tensor, aten._unsafe_index_put.default}
)  # fmt: skip
"""Operations whose second argument is a list of indices."""

TORCH, TRANSFORMERS = str(Path(torch.__file__).parent), str(Path(_transformers).parent)
HERE = str(Path(__file__).parent)


@dataclass(frozen=True)
class Wait:
    """One operation that makes the host wait.

    Attributes:
        kind: `READ`, `UPLOAD`, `HOST_TENSOR` or `PIN`.
        op: the operation.
        why: what waits.
        line: the source line that called it, and the one of ours that led there.
    """

    kind: str
    op: str
    why: str
    line: str = ""

    def __str__(self) -> str:
        return f"{self.op}: {self.why} ({self.kind}), at {self.line}"


def wait_of(
    func: Any, args: Sequence[Any], kwargs: dict[str, Any], host_is_device: bool = False
) -> Wait | None:
    """The wait of one dispatched operation; `None` where there is none. `line` is left empty.

    Args:
        host_is_device: values of host tensors are read at a cost, too.
    """
    wait = _kind(func, args, kwargs)
    if wait is None:
        return None
    kind, why = wait
    is_free = all(tensor.device.type == "cpu" for tensor in tensors((args, kwargs)))
    return None if kind == READ and is_free and not host_is_device else Wait(kind, str(func), why)


def _kind(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, str] | None:
    if func is aten.lift_fresh.default:
        return HOST_TENSOR, f"a tensor {list(args[0].shape)} is made of Python values"
    if func is aten._pin_memory.default:
        return PIN, "allocates pinned memory"
    if func is aten._to_copy.default:
        return _between(args[0].device, kwargs.get("device"))
    if func is aten.copy_.default:
        return _between(args[1].device, args[0].device)
    if func in HIDDEN:
        return READ, HIDDEN[func]
    if func in INDEXING:
        return _of_indices(args[0], [index for index in args[1] if index is not None])
    if torch.Tag.data_dependent_output in func.tags:
        return READ, "the host reads a value"
    if torch.Tag.dynamic_output_shape in func.tags and not _has_size(func, kwargs):
        return READ, "the shape of the result depends on values"
    return _of_mixed(args, kwargs)


def _between(source: torch.device, target: Any) -> tuple[str, str] | None:
    target = source if target is None else torch.device(target)
    if source.type == target.type:
        return None
    if target.type == "cpu":
        return READ, "copies from the device to the host"
    return UPLOAD, "copies from the host to the device"


def _of_indices(indexed: Tensor, indices: Sequence[Tensor]) -> tuple[str, str] | None:
    for index in indices:
        if index.dtype in (torch.bool, torch.uint8):
            return READ, f"a boolean index {list(index.shape)} needs its number of hits"
        if index.device.type != indexed.device.type:
            return UPLOAD, f"an index {list(index.shape)} on {index.device} into {indexed.device}"
    return None


def _has_size(func: Any, kwargs: dict[str, Any]) -> bool:
    return func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is not None


def _of_mixed(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, str] | None:
    """Host tensors beside device tensors; one without axes is a number, which kernels take."""
    kinds = {tensor.device.type for tensor in tensors((args, kwargs)) if tensor.ndim}
    if len(kinds) > 1 and "cpu" in kinds:
        return UPLOAD, "takes tensors of the host and of the device"
    return None


def tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in nested arguments."""
    return (value for value in tree_iter(values) if isinstance(value, Tensor))


def called_from() -> str:
    """The innermost line outside torch that is being run, and the innermost that is outside
    transformers too, if that is another one."""
    frame: Any = sys._getframe(1)
    inner = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((TORCH, HERE, "<")) and "contextlib" not in file:
            place = f"{_short(file)}:{frame.f_lineno} ({frame.f_code.co_name})"
            if not file.startswith(TRANSFORMERS):
                return place if not inner else f"{inner}, called from {place}"
            inner = inner or place
        frame = frame.f_back
    return inner or "an unknown line"


def _short(file: str) -> str:
    """The path from its package on, or the file's last two parts."""
    parts = Path(file).parts
    for package in ("sooner_lab", "sooner", "transformers"):
        if package in parts[:-1]:
            start = len(parts) - 1 - parts[::-1].index(package)
            return "/".join(parts[start:])
    return "/".join(parts[-2:])
