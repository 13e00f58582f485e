"""Layers whose MLPs take a prompt piece by piece, so that their intermediates stay small.

A prefill that needs all queries of a layer at once, as sparse attention does to find its patterns,
can't be chunked as a whole. Its MLPs can: they work token by token, and their intermediates,
several times as wide as the states, are what a long prompt runs out of memory with first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..checks import check_whole
from ..errors import UnsupportedError
from ..models import Adapter, adapt


@contextmanager
def chunked_mlps(model: Any, size: int) -> Iterator[None]:
    """Runs every decoder layer's MLP over `size` tokens of each row at a time, within the context.

    Results stay the same up to the order in which a matrix product of another size adds up. Vision
    encoders are left alone. On exit, and after exceptions, no trace is left; contexts may be
    nested. Other threads that run the model meanwhile get the same results, in pieces.

    Args:
        model: an HF model of one of the supported families, or its adapter.
        size: tokens of a row that go through an MLP at once, 1 or more.

    Raises:
        SoonerError: `size` is no count, or no family handles the model.
        UnsupportedError: a layer has no dense MLP, such as a mixture of experts; names it.
    """
    check_whole("chunked_mlps: size", size)
    adapter = adapt(model)
    mlps = [_dense(layer, adapter) for layer in adapter.decoder.layers]
    with ExitStack() as stack:
        for mlp in mlps:
            stack.enter_context(replaced(mlp, partial(_in_chunks, mlp.forward, size)))
        yield


def _dense(layer: nn.Module, adapter: Adapter) -> nn.Module:
    """Returns the MLP of a layer."""
    mlp = getattr(layer, "mlp", None)
    if mlp is None or hasattr(mlp, "experts"):
        kind = f"a {type(mlp).__name__}" if mlp is not None else "no mlp"
        raise UnsupportedError(
            f"chunked_mlps cuts dense MLPs, but a {type(layer).__name__} of "
            f"{type(adapter.model).__name__} has {kind}; leave the context out"
        )
    return mlp


@contextmanager
def replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """`module` with another forward; one that stood on the instance (device hooks) comes back."""
    before = {name: value for name, value in module.__dict__.items() if name == "forward"}
    module.forward = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        module.__dict__.update(before)


def _in_chunks(forward: Callable[[Tensor], Tensor], size: int, hidden: Tensor) -> Tensor:
    """`forward` over `hidden [rows, tokens, width]`, `size` tokens at a time."""
    tokens = hidden.shape[1]
    first = forward(hidden[:, :size])
    if tokens <= size:
        return first
    out = first.new_empty(*hidden.shape[:2], first.shape[-1])
    out[:, :size] = first
    for start in range(size, tokens, size):
        out[:, start : start + size] = forward(hidden[:, start : start + size])
    return out
