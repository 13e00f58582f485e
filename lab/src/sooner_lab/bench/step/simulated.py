"""A device of its own memory that is not there: real values, computed on the CPU.

Fake tensors hold no values, so a loop that reads can't run on them, and on the CPU nobody sees the
copies that it does not need to make. Here tensors say that they are on `DEVICE`, their values lie
on the CPU, and every copy between the two is dispatched as on a GPU. It borrows the name `meta`,
the only device that torch takes from anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from .guard import StepMode

DEVICE = torch.device("meta")


class SimulatedTensor(Tensor):
    """Says that it is on `DEVICE`; `cpu_values` has its values."""

    cpu_values: Tensor

    @staticmethod
    def __new__(cls, tensor: Tensor) -> SimulatedTensor:
        with torch.inference_mode(
            False
        ):  # a view made in that mode can't be of a tensor that is not
            made = Tensor._make_wrapper_subclass(
                cls,
                tensor.size(),
                strides=tensor.stride(),
                storage_offset=tensor.storage_offset(),
                dtype=tensor.dtype,
                device=DEVICE,
            )
        made.cpu_values = tensor
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _on_cpu(func, args, kwargs or {})


@contextmanager
def simulated_device() -> Iterator[None]:
    """Tensors asked for on `DEVICE` have values."""
    with _Functions(), _Device():
        yield


def to_device(model: Any) -> Any:
    """Put a model's weights and buffers on `DEVICE`, in place."""
    for module in model.modules():
        for name, weights in list(module._parameters.items()):
            if weights is not None:
                simulated = SimulatedTensor(weights.detach())
                module._parameters[name] = torch.nn.Parameter(simulated, requires_grad=False)
        for name, values in list(module._buffers.items()):
            if values is not None:
                module._buffers[name] = SimulatedTensor(values)
    return model


class _Device(StepMode):
    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return _on_cpu(func, args, kwargs)


def _on_cpu(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the values; what it returns is where it would be."""
    simulated: dict[int, SimulatedTensor] = {}

    def values(value: Any) -> Any:
        if isinstance(value, SimulatedTensor):
            simulated[id(value.cpu_values)] = value
            return value.cpu_values
        return value

    cpu_args, cpu_kwargs = mapped(values, args), mapped(values, kwargs)
    is_there = bool(simulated)
    if (device := cpu_kwargs.get("device")) is not None:
        is_there = torch.device(device) == DEVICE
        cpu_kwargs["device"] = torch.device("cpu")

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) in simulated:  # in place
            return simulated[id(value)]
        return SimulatedTensor(value) if is_there else value

    return mapped(placed, func(*cpu_args, **cpu_kwargs))


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the leaves of tuples, lists and dictionaries; torch's own `tree_map`
    takes most of the time of an operation."""
    if isinstance(value, tuple | list):
        return type(value)([mapped(function, part) for part in value])
    if isinstance(value, dict):
        return {name: mapped(function, part) for name, part in value.items()}
    return function(value)


class _Functions(TorchFunctionMode):
    """What torch decides before it dispatches anything."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor):
            device = kwargs.pop("device", None)
            made = func(*args, **kwargs)
            return made if device is None else made.to(device)
        name = getattr(func, "__name__", "")
        if name in ("tolist", "numpy") and isinstance(args[0], SimulatedTensor):
            return getattr(args[0].cpu(), name)(*args[1:], **kwargs)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            if isinstance(args[0], SimulatedTensor):
                args = (args[0], _sent(args[1]), *args[2:])
            return func(*args)
        if func is scaled_dot_product_attention and isinstance(args[0], SimulatedTensor):
            args, kwargs = mapped(lambda x: getattr(x, "cpu_values", x), [args, kwargs])
            return SimulatedTensor(func(*args, **kwargs))
        return func(*args, **kwargs)


def _sent(index: Any) -> Any:
    """An index whose lists are tensors on the device, as indexing makes them there."""
    if isinstance(index, list):
        return torch.tensor(index).to(DEVICE)
    return tuple(_sent(part) for part in index) if isinstance(index, tuple) else index
