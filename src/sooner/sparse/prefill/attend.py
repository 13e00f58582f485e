"""Attention over a prompt as one function, which whoever listens to attention can hear."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

Execute = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def prompt_attention(
    queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, execute: Execute
) -> Tensor:
    """Causal attention over a whole prompt, `[rows, tokens, heads, head_dim]`.

    It takes part in torch's override protocol, as `scaled_dot_product_attention` does: an active
    `TorchFunctionMode` hears this call, with the states in the order of the prompt, and none of the
    many that `execute` makes over permuted parts of them.

    Args:
        queries: rotated, `[rows, heads, tokens, head_dim]`.
        keys, values: `[rows, kv_heads, tokens, head_dim]`.
        scale: factor of the scores.
        execute: does it, given the same four.
    """
    states = (queries, keys, values)
    if has_torch_function(states):
        return handle_torch_function(
            prompt_attention, states, queries, keys, values, scale=scale, execute=execute
        )
    return execute(queries, keys, values, scale)
