"""Fused operators in the place of a decoder's own, while a forward over a block lasts."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama import modeling_llama as llama

from . import ops

DEVICES = frozenset({"cuda"})
"""Types of devices on which a fused operator is a kernel."""
ROTATION = "apply_rotary_pos_emb"

_LOCK = threading.Lock()
_THREAD = threading.local()
"""`is_on` while a forward of this thread is fused; `sums` are, by the id of the norm that comes
next, a sum and its norm, which was computed with it."""
_ABSENT = object()


class _Swap:
    """A value under a name of a namespace, as long as somebody uses it."""

    def __init__(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        self.namespace, self.name, self.value = namespace, name, value
        self.before: Any = _ABSENT
        self.users = 0

    @property
    def replaces_nothing_else(self) -> bool:
        return self.name == ROTATION or self.name not in self.namespace

    def enter(self) -> None:
        if not self.users:
            self.before = self.namespace.get(self.name, _ABSENT)
            self.namespace[self.name] = self.value
        self.users += 1

    def leave(self) -> None:
        self.users -= 1
        if self.users or self.namespace.get(self.name) is not self.value:
            return
        if self.before is _ABSENT:
            del self.namespace[self.name]
        else:
            self.namespace[self.name] = self.before


_PLANS: weakref.WeakKeyDictionary[nn.Module, list[_Swap]] = weakref.WeakKeyDictionary()
_FORWARDS: weakref.WeakKeyDictionary[nn.Module, _Swap] = weakref.WeakKeyDictionary()
_ROTATIONS: dict[int, _Swap] = {}
"""By the id of a modelling file's namespace, which lives as long as Python does."""


@contextmanager
def fused(decoder: nn.Module) -> Iterator[None]:
    """Let the forwards of a decoder on a GPU run fused operators until the context ends.

    What is replaced does, by its code, just what Llama's or Gemma's does: RMSNorms, `residual + x`
    in front of one, and RoPE. Everything else, another thread's forwards, forwards that may be
    differentiated, and every decoder on another device stay as they are, bit for bit.

    Args:
        decoder: transformers' text model, with `layers`.
    """
    first = next(decoder.parameters(), None) if isinstance(decoder, nn.Module) else None
    if first is None or first.device.type not in DEVICES:
        yield
        return
    with _LOCK:
        if (swaps := _PLANS.get(decoder)) is None:
            swaps = _PLANS[decoder] = _plan(decoder)
        for swap in swaps:
            swap.enter()
    was_on, _THREAD.is_on, _THREAD.sums = getattr(_THREAD, "is_on", False), True, {}
    try:
        yield
    finally:
        _THREAD.is_on, _THREAD.sums = was_on, {}
        with _LOCK:
            for swap in swaps:
                swap.leave()


def _is_on() -> bool:
    return getattr(_THREAD, "is_on", False) and not torch.is_grad_enabled()


def _plan(decoder: nn.Module) -> list[_Swap]:
    """Returns what of a decoder can be replaced."""
    swaps = []
    for module in decoder.modules():
        if _gemma(module) is not None:
            swaps.append(_forward_swap(module, _norm))
        if (rotation := _rotation_swap(module)) is not None:
            swaps.append(rotation)
    layers = list(getattr(decoder, "layers", ()))
    following = [getattr(layer, "input_layernorm", None) for layer in layers[1:]]
    following.append(getattr(decoder, "norm", None))
    for layer, after in zip(layers, following, strict=False):  # there may be no layer
        if _is_layer(layer):
            swaps.append(_forward_swap(layer, partial(_layer, after=after)))
    # A forward that somebody else has put on a module, such as accelerate, stays.
    return [swap for swap in dict.fromkeys(swaps) if swap.users or swap.replaces_nothing_else]


def _rotation_swap(attention: nn.Module) -> _Swap | None:
    """Returns the swap of the RoPE function of a module's file, if its forward calls Llama's."""
    forward: Any = inspect.unwrap(type(attention).forward)
    code, names = getattr(forward, "__code__", None), getattr(forward, "__globals__", {})
    if code is None or ROTATION not in code.co_names:
        return None
    if id(names) not in _ROTATIONS:
        rotation: Any = names.get(ROTATION)
        if not _same(rotation, llama.apply_rotary_pos_emb):
            return None
        _ROTATIONS[id(names)] = _Swap(names, ROTATION, _rotation(rotation))
    return _ROTATIONS[id(names)]


def _forward_swap(module: nn.Module, make: Callable[[Any], Callable[..., Any]]) -> _Swap:
    """Returns the one swap of a module's forward, whichever decoders share the module."""
    if module not in _FORWARDS:
        _FORWARDS[module] = _Swap(vars(module), "forward", make(module))
    return _FORWARDS[module]


def _gemma(module: Any) -> bool | None:
    """Returns whether a module is Gemma's norm rather than Llama's; `None` is neither."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.dim() != 1 or hasattr(weight, "placements"):
        return None
    for kind, is_gemma in ((llama.LlamaRMSNorm, False), (GemmaRMSNorm, True)):
        helper = "_norm"
        if _same(type(module).forward, kind.forward) and (
            not is_gemma or _same(getattr(type(module), helper, None), getattr(kind, helper))
        ):
            return is_gemma
    return None


def _is_layer(layer: Any) -> bool:
    norm = getattr(layer, "post_attention_layernorm", None)
    return _same(type(layer).forward, llama.LlamaDecoderLayer.forward) and _gemma(norm) is not None


def _same(value: Any, other: Any) -> bool:
    """Returns whether two functions have the same code, whatever their documentation."""
    value, other = (inspect.unwrap(each) if callable(each) else None for each in (value, other))
    codes = [getattr(each, "__code__", None) for each in (value, other)]
    if not all(isinstance(code, CodeType) for code in codes):
        return False
    return _content(value) == _content(other)


def _content(function: Any) -> tuple[Any, ...]:
    code = function.__code__
    constants = tuple(constant for constant in code.co_consts if constant != function.__doc__)
    return code.co_code, code.co_names, code.co_varnames, constants, function.__defaults__


def _eps(norm: Any) -> float:
    return float(norm.eps if hasattr(norm, "eps") else norm.variance_epsilon)


def _class_forward(module: nn.Module) -> Callable[..., Any]:
    """Returns a module's forward as its class has it; weak, since the module holds what is made of
    it.
    """
    forward, reference = type(module).forward, weakref.ref(module)

    def run(*args: Any, **kwargs: Any) -> Any:
        return forward(reference(), *args, **kwargs)

    return run


def _norm(module: Any) -> Callable[[Tensor], Tensor]:
    class_forward, reference, is_gemma = (
        _class_forward(module),
        weakref.ref(module),
        bool(_gemma(module)),
    )

    def forward(x: Tensor) -> Tensor:
        norm = reference()
        if norm is None or not _is_on() or x.dtype != norm.weight.dtype:
            normed: Tensor = class_forward(x)
            return normed
        total, normed = _THREAD.sums.pop(id(norm), (None, x))
        if total is x:
            return normed
        return ops.rms_norm(x, norm.weight, _eps(norm), is_gemma)

    return forward


def _sum(x: Tensor, residual: Tensor, norm: Any) -> Tensor:
    """`residual + x`; if a norm of it comes next, it is computed at once and kept for it."""
    is_gemma = None if norm is None else _gemma(norm)
    if is_gemma is None or norm.weight.dtype != x.dtype or norm.weight.device != x.device:
        return residual + x
    total, normed = ops.add_rms_norm(x, residual, norm.weight, _eps(norm), is_gemma)
    _THREAD.sums[id(norm)] = total, normed
    return total


def _layer(module: Any, after: Any) -> Callable[..., Tensor]:
    """`LlamaDecoderLayer.forward`; `after` is the norm that is given its result."""
    class_forward, reference = _class_forward(module), weakref.ref(module)
    next_norm = None if after is None else weakref.ref(after)

    def forward(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        layer = reference()
        if layer is None or args or not _is_on():
            made: Tensor = class_forward(hidden_states, *args, **kwargs)
            return made
        attended, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **kwargs)
        between = _sum(attended, hidden_states, layer.post_attention_layernorm)
        thought = layer.mlp(layer.post_attention_layernorm(between))
        return _sum(thought, between, None if next_norm is None else next_norm())

    return forward


def _rotation(original: Callable[..., Any]) -> Callable[..., Any]:
    def rotate(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> tuple[Tensor, Tensor]:
        if not _is_on() or unsqueeze_dim != 1 or cos.dim() != 3 or cos.dtype != q.dtype:
            turned: tuple[Tensor, Tensor] = original(q, k, cos, sin, unsqueeze_dim)
            return turned
        return ops.rope(q, k, cos, sin)

    return rotate
