"""The base of the modes over a step: each sees the operations that reach a backend."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class StepMode(TorchDispatchMode):
    """Takes composite operations apart first, as autograd would: under `inference_mode` a mode is
    handed `aten.to` and `aten.item` whole, and would miss what waits in them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # questions of Python's, such as a fake tensor's device
            return func(*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE):
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
