"""Which models' forwards can be launched as graphs, and why others can't, in words."""

from __future__ import annotations

from typing import Any

from ...models.base import is_sharded
from ..runner import ModelRunner, is_split

WAITING = {
    "gemma3n": "uploads a number in each layer whose activations are sparse",
    "step3p7": "reads which of its experts are chosen",
}
"""What the host does within a forward of a decoder, by its package in `transformers.models`."""

UPDATED = ("dynamic", "longrope")
"""Kinds of RoPE for which transformers reads the largest position in each forward; a runner that
turns each token by itself (`engine/rope.py`) does not."""


def why_not_padded(runner: ModelRunner) -> str | None:
    """Why forwards of a model can't be padded to buckets; `None` if they can."""
    model = runner.adapter.model
    if type(runner) is not ModelRunner:
        return "guidance forwards every row twice"
    if is_split(model):
        return "the model's layers lie on several devices"
    if is_sharded(model):
        return "tensor parallelism waits for other ranks"
    if not runner.adapter.takes_blocks:
        return f"the attention of {type(model).__name__} takes masks"
    return None


def why_not(runner: ModelRunner) -> str | None:
    """Why forwards of a model can't be graphs; `None` if they can.

    A graph replays what the device did: a forward in which the host reads from the device, or
    sends to it, can't be captured. What transformers does is known by name here, found by a scan
    (`lab/tests/bench/test_graph_waits.py`); for a checkpoint's own code the capture tells.
    """
    if (reason := why_not_padded(runner)) is not None:
        return reason
    decoder, name = runner.adapter.decoder, type(runner.adapter.model).__name__
    package = type(decoder).__module__.removeprefix("transformers.models.").split(".")[0]
    if package in WAITING:
        return f"{name} {WAITING[package]}"
    is_by_token = runner.rope is not None and runner.rope.is_known
    for module in decoder.modules():
        if _runs_experts_in_turn(module):
            return (
                f"{name} reads which of its experts are chosen; load it with "
                "experts_implementation='grouped_mm'"
            )
        if not is_by_token and (kind := _updated(module)) is not None:
            return f"the '{kind}' RoPE of {name} reads the largest position"
    return None


def _runs_experts_in_turn(module: Any) -> bool:
    """Whether a module is of experts that transformers can run at once, and does not."""
    is_wrapped = hasattr(module, "has_gate") and hasattr(module, "is_transposed")
    return is_wrapped and getattr(module.config, "_experts_implementation", None) == "eager"


def _updated(module: Any) -> str | None:
    """The kind of RoPE of a module, one or one for each kind of layer, if it is of `UPDATED`."""
    kinds = getattr(module, "rope_type", None)
    kinds = kinds.values() if isinstance(kinds, dict) else [kinds]
    return next((kind for kind in kinds if kind in UPDATED), None)
