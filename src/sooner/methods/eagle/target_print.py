"""Tells for which target a head was trained."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...errors import SoonerError

SAMPLES = 16
"""Weights of each table that the fingerprint keeps."""

SPREAD = 0.02
"""Share of the largest of them by which a weight may differ: 8 bits and any float are finer."""

TABLES = ("embedding", "lm_head")


def fingerprint(adapter: Any) -> dict[str, Any]:
    """What a head depends on: the target's shapes, and a few weights of its two tables.

    The weights themselves rather than their hash, so that a target in another dtype is still the
    same one. A table in a quantised format of its own is left out.

    Args:
        adapter: the target's adapter.
    """
    config = adapter.text_config
    found: dict[str, Any] = {
        "model_type": str(adapter.config.model_type),
        "hidden_size": int(config.hidden_size),
        "layers": adapter.layers,
        "vocab_size": adapter.vocab_size,
    }
    for name, module in zip(TABLES, (adapter.embedding, adapter.head), strict=True):
        if (weights := _sample(module)) is not None:
            found[name] = [round(float(weight), 5) for weight in weights]
    return found


def _sample(module: nn.Module) -> Tensor | None:
    """`SAMPLES` weights, spread over the whole table."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.ndim != 2:
        return None
    rows, columns = (torch.linspace(0, size - 1, SAMPLES).long() for size in weight.shape)
    return weight.detach()[rows.to(weight.device), columns.to(weight.device)].float().cpu()


def check_target(trained_for: dict[str, Any], target: dict[str, Any]) -> None:
    """Refuse a target that a head was not trained for.

    Args:
        trained_for: fingerprint in the head's config.
        target: fingerprint of the target at hand.

    Raises:
        SoonerError: names what differs.
    """
    apart = [
        f"{name} {trained_for[name]}, not {target.get(name)}"
        for name in trained_for
        if name not in TABLES and trained_for[name] != target.get(name)
    ]
    if not apart:
        apart = [f"weights of its {name}" for name in TABLES if _differs(trained_for, target, name)]
    if apart:
        raise SoonerError(
            f"draft head was trained for another target ({'; '.join(apart)}); give that target, "
            "or train a head with `sooner train draft --model ...`"
        )


def _differs(trained_for: dict[str, Any], target: dict[str, Any], name: str) -> bool:
    if name not in trained_for or name not in target:
        return False
    ours, theirs = torch.tensor(trained_for[name]), torch.tensor(target[name])
    return bool((ours - theirs).abs().max() > SPREAD * ours.abs().max())
