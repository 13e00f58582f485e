"""Modes that watch a step: which operations it runs, what it waits for, and how it compiles.

On CUDA these block the host, or copy from pageable memory, which blocks too: reading a value, a
shape that depends on values, copies between devices, indices that live on the host, and tensors
made of Python values; `FakeTensorMode` alone lets uploads, `.cpu()` and `x[list]` pass. `NoWaiting`
belongs over fake CUDA tensors (`fake_cuda`), where nothing is computed and no GPU is needed;
`Waits` counts there or on a simulated device.
"""

from __future__ import annotations

import functools
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from transformers import __file__ as _transformers

aten = torch.ops.aten
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

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


def wait_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Wait | None:
    """Return the wait of one dispatched operation without its line, or `None`."""
    wait = _kind(func, args, kwargs)
    if wait is None:
        return None
    kind, why = wait
    is_free = all(tensor.device.type == "cpu" for tensor in tensors((args, kwargs)))
    return None if kind == READ and is_free else Wait(kind, str(func), why)


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
    kinds = {tensor.is_cpu for tensor in tensors((args, kwargs)) if tensor.ndim}
    if len(kinds) > 1:
        return UPLOAD, "takes tensors of the host and of the device"
    return None


def tensors(values: Any) -> Iterator[Tensor]:
    """All tensors in nested arguments, which are tuples, lists and dictionaries."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list | dict):
        for value in values.values() if isinstance(values, dict) else values:
            yield from tensors(value)


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


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether an operation is made of others."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE)


class StepMode(TorchDispatchMode):
    """Takes composite operations apart first, as autograd would: under `inference_mode` a mode is
    handed `aten.to` and `aten.item` whole, and would miss what waits in them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # questions of Python's, such as a fake tensor's device
            return func(*args, **kwargs)
        if is_composite(func):
            with _again(self):
                return func.decompose(*args, **kwargs)
        return self.call(func, args, kwargs)

    @abstractmethod
    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operation."""


@contextmanager
def _again(mode: TorchDispatchMode) -> Iterator[None]:
    """Within a mode's own call it is off; this turns it on, without what a subclass enters with."""
    TorchDispatchMode.__enter__(mode)
    try:
        yield
    finally:
        TorchDispatchMode.__exit__(mode, None, None, None)


@contextmanager
def fake_cuda() -> Iterator[None]:
    """New tensors are fake and on `cuda`, which this machine need not have."""
    with FakeTensorMode(allow_non_fake_inputs=False), torch.device("cuda"), _Decomposed():
        yield


class _Decomposed(StepMode):
    """Under `inference_mode` fake tensors send one number to `cuda` in earnest, since they know
    the copy by its part `_to_copy` alone."""

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)


class StepWaitsError(RuntimeError):
    """A step waited.

    Attributes:
        wait: where and why.
    """

    def __init__(self, wait: Wait) -> None:
        super().__init__(f"a step may not wait: {wait}")
        self.wait = wait


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

    A tensor made of Python values counts once, when it is copied to the device.

    Attributes:
        section: what is running; counts are kept by section.
        reads, uploads: by section.
        lines: how often each `(section, wait)` was seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.section = "step"
        self.reads: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        self.lines: Counter[tuple[str, Wait]] = Counter()

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wait = wait_of(func, args, kwargs)
        if wait is not None and wait.kind in (READ, UPLOAD):
            times = 2 if func in HIDDEN else 1
            (self.reads if wait.kind == READ else self.uploads)[self.section] += times
            self.lines[self.section, replace(wait, line=called_from())] += times
        return func(*args, **kwargs)


class OperationTrace(StepMode):
    """Records every operation with the shapes and constants it is given, and its line."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        signature = tree_map(_signature, (args, kwargs, result))
        self.calls.append((f"{func} {signature!r}", called_from()))
        return result


def _signature(value: Any) -> Any:
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)}/{list(value.stride())}+{value.storage_offset()}"
    return value if isinstance(value, int | float | str | bool | type(None)) else str(value)


def check_static(step: Callable[[], Any], times: int = 3) -> None:
    """Check that consecutive steps are the same operations on the same shapes and constants.

    Raises:
        StepGrowsError: they are not; names the first operation that differs and its line.
    """
    before = None
    for _ in range(times):
        with OperationTrace() as trace:
            step()
        for first, other in zip_longest(before or trace.calls, trace.calls):
            if first is None or other is None:
                call, line = first or other
                raise StepGrowsError(f"two steps differ in length: one lacks {call} at {line}")
            if first[0] != other[0]:
                raise StepGrowsError(
                    f"two steps differ: {first[0]}, then {other[0]}, at {other[1]}"
                )
        before = trace.calls


@dataclass(frozen=True)
class Compilation:
    """Attributes:
    graph_breaks: places at which tracing went back to Python.
    recompiles: graphs compiled after every bucket had been called once.
    graphs: all graphs.
    """

    graph_breaks: int
    recompiles: int
    graphs: int


def compilation(
    step: Callable[..., Any], buckets: Sequence[tuple[Any, ...]], times: int = 3
) -> Compilation:
    """Compile `step` for each bucket's arguments, then call it `times` more for each.

    Shapes are static, and nothing is generated (`aot_eager`), so this takes seconds. Dynamo's own
    caches are emptied before and after.
    """
    with _fresh_dynamo(), torch.no_grad():
        compiled = torch.compile(step, dynamic=False, backend="aot_eager")
        for arguments in buckets:
            compiled(*arguments)
        first = _graphs()
        for _ in range(times):
            for arguments in buckets:
                compiled(*arguments)
        return Compilation(_breaks(), _graphs() - first, _graphs())


def _breaks() -> int:
    """Not every break is counted under its name: one at a branch is only seen in where Python
    resumes, and a frame that is given up only in its reason."""
    kinds = (counters["graph_break"], counters["unimplemented"])
    return max(len(counters["resumes"]), *(sum(kind.values()) for kind in kinds))


def _graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


@contextmanager
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    try:
        yield
    finally:
        torch._dynamo.reset()
        counters.clear()
