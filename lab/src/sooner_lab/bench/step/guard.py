"""Modes that stand over a step: one raises where it waits, one counts, one checks indices.

`NoWaiting` belongs over fake CUDA tensors (`fake_cuda`), where nothing is computed and no GPU is
needed. `Waits` counts there, on a simulated device, or on the CPU in the part of the device.
`IndexRanges` computes on the CPU: a write out of range would end a CUDA context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from .modes import StepMode
from .waits import HIDDEN, HOST_TENSOR, INDEXING, READ, UPLOAD, Wait, called_from, wait_of

aten = torch.ops.aten


class StepWaitsError(RuntimeError):
    """A step waited.

    Attributes:
        wait: where and why.
    """

    def __init__(self, wait: Wait) -> None:
        super().__init__(f"a step may not wait: {wait}")
        self.wait = wait


class OutOfRangeError(IndexError):
    """An index tensor points outside of what it indexes."""


class StepGrowsError(RuntimeError):
    """Two steps of one bucket differ in a shape or in a constant, so no graph can serve both."""


class NoWaiting(StepMode):
    """Raises `StepWaitsError` at the first operation for which the host would wait.

    Enter it inside `fake_cuda`, around the step alone: the model is built outside of it.
    """

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (wait := wait_of(func, args, kwargs)) is not None:
            raise StepWaitsError(replace(wait, line=called_from()))
        return func(*args, **kwargs)


class Waits(StepMode):
    """Counts what the host waits for, and lets it pass.

    Over device tensors a tensor made of Python values counts once, when it is copied there. With
    `host_is_device` the CPU plays the device: such a tensor counts when it is made, `tolist`,
    `cpu` and `numpy` count as reads, and copies that a CPU does not make (`to(device)`) are missed.

    Attributes:
        section: what is running; counts are kept by section.
        reads, uploads: by section.
        lines: how often each `(section, wait)` was seen.
    """

    def __init__(self, host_is_device: bool = False) -> None:
        super().__init__()
        self.host_is_device = host_is_device
        self.section = "step"
        self.reads: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        self.lines: Counter[tuple[str, Wait]] = Counter()
        self._python = _PythonReads(self)

    def __enter__(self) -> Waits:
        if self.host_is_device:
            self._python.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self.host_is_device:
            self._python.__exit__(*error)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if (wait := wait_of(func, args, kwargs, self.host_is_device)) is not None:
            self.add(wait, 2 if func in HIDDEN else 1)
        return func(*args, **kwargs)

    def add(self, wait: Wait, times: int = 1) -> None:
        """Count `wait`, which was just seen."""
        is_upload = wait.kind == (HOST_TENSOR if self.host_is_device else UPLOAD)
        if wait.kind == READ:
            self.reads[self.section] += times
        elif is_upload:
            self.uploads[self.section] += times
        else:
            return
        self.lines[self.section, replace(wait, line=called_from())] += times


class _PythonReads(TorchFunctionMode):
    """Reads of a CPU tensor that are no dispatched operation."""

    def __init__(self, waits: Waits) -> None:
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("tolist", "numpy", "cpu"):
            self.waits.add(Wait(READ, f"Tensor.{name}", "the host reads a tensor"))
            with torch._C.DisableTorchFunction(), _without(self.waits):
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@contextmanager
def _without(waits: Waits) -> Iterator[None]:
    """Count nothing: one `tolist` is one read, whatever it is made of."""
    counts = waits.reads.copy(), waits.uploads.copy(), waits.lines.copy()
    yield
    waits.reads, waits.uploads, waits.lines = counts


@dataclass(frozen=True)
class Call:
    """An operation of a trace: its name, what it was given and returned, and its line."""

    op: str
    signature: str
    line: str


class OperationTrace(StepMode):
    """Records every operation with the shapes and constants it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        signature = tree_map(_signature, (args, kwargs, result))
        self.calls.append(Call(str(func), repr(signature), called_from()))
        return result


def _signature(value: Any) -> Any:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)}/{list(value.stride())}+{value.storage_offset()}"
    return value if isinstance(value, int | float | str | bool | type(None)) else str(value)


def traced(step: Callable[[], Any]) -> list[Call]:
    """The operations of one call."""
    with OperationTrace() as trace:
        step()
    return trace.calls


def check_static(step: Callable[[], Any], times: int = 3) -> None:
    """Check that consecutive steps are the same operations on the same shapes and constants.

    Raises:
        StepGrowsError: they are not; names the first operation that differs and its line.
    """
    before = traced(step)
    for _ in range(times - 1):
        after = traced(step)
        for first, other in zip_longest(before, after):
            if (
                first is None
                or other is None
                or (first.op, first.signature) != (other.op, other.signature)
            ):
                raise StepGrowsError(_difference(first, other))
        before = after


def _difference(first: Call | None, other: Call | None) -> str:
    if first is None or other is None:
        left = first or other
        assert left is not None
        return f"two steps differ in length: only one of them runs {left.op} at {left.line}"
    return (
        f"two steps differ: {first.op} {first.signature}, then {other.op} {other.signature}, at "
        f"{other.line}"
    )


class IndexRanges(StepMode):
    """Raises `OutOfRangeError` at a gather or scatter outside of its range; for real CPU tensors.

    Indices of `scatter`, `gather`, `index_select`, `index_add`, `index_copy`, `index_fill` and
    embeddings lie in `0 .. size - 1`; those of indexing in `-size .. size - 1`.
    """

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for index, size, lowest in _ranges(func, args):
            if index.numel() and index.dtype is not torch.bool:
                minimum, maximum = int(index.min()), int(index.max())
                if minimum < lowest or maximum >= size:
                    wrong = minimum if minimum < lowest else maximum
                    raise OutOfRangeError(
                        f"{func}: index {wrong} is not in {lowest} .. {size - 1}, "
                        f"at {called_from()}"
                    )
        return func(*args, **kwargs)


BY_AXIS = (
    "scatter", "scatter_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_",
    "gather", "index_select", "index_add", "index_add_", "index_copy", "index_copy_", "index_fill",
    "index_fill_",
)  # fmt: skip
"""Operations called with `(tensor, axis, index, ...)`."""


def _ranges(func: Any, args: Any) -> Iterator[tuple[Tensor, int, int]]:
    """Index tensors of a call, the size they index, and the lowest index allowed."""
    name = func.overloadpacket.__name__
    if name in BY_AXIS and isinstance(args[2], Tensor):
        size = args[0].shape[args[1]] if args[0].ndim else 1
        yield args[2], size, 0
    elif name == "embedding":
        yield args[1], args[0].shape[0], 0
    elif func in INDEXING:
        axis = 0
        for index in args[1]:
            if index is None or index.dtype is not torch.bool:
                if index is not None:
                    yield index, args[0].shape[axis], -args[0].shape[axis]
                axis += 1
            else:
                axis += index.ndim
