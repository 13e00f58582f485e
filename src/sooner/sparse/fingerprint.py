"""Tells for which models patterns were searched."""

from __future__ import annotations

import hashlib
import json

from ..models import Adapter


def fingerprint(adapter: Adapter) -> str:
    """Returns what patterns depend on: `name=value` of the text config's shapes, and a hash of its
    RoPE.
    """
    config = adapter.text_config
    rope = getattr(config, "rope_parameters", None) or {"theta": getattr(config, "rope_theta", 0)}
    digest = hashlib.sha256(json.dumps(rope, sort_keys=True, default=str).encode()).hexdigest()
    count = heads(adapter)
    shapes = {
        "model_type": config.model_type,
        "layers": adapter.layers,
        "heads": count,
        "kv_heads": getattr(config, "num_key_value_heads", None) or count,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // count,
        "hidden": config.hidden_size,
        "rope": digest[:12],
    }
    return " ".join(f"{name}={value}" for name, value in shapes.items())


def heads(adapter: Adapter) -> int:
    """Returns query heads of every decoder layer."""
    return int(adapter.text_config.num_attention_heads)


def model_name(adapter: Adapter) -> str:
    """Hub id or folder of a model, or its class name where it was never saved."""
    return getattr(adapter.model, "name_or_path", "") or type(adapter.model).__name__


def difference(ours: str, other: str) -> str:
    """Returns what two fingerprints differ in: `name (ours, not theirs)`."""
    first, second = (
        dict(part.partition("=")[::2] for part in text.split()) for text in (ours, other)
    )
    return ", ".join(
        f"{name} ({first.get(name)}, not {second.get(name)})"
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    )
