"""What a model's config and signatures tell against the generic adapter."""

from __future__ import annotations

import inspect
from typing import Any

DECODER = ("inputs_embeds", "position_ids", "attention_mask", "past_key_values")
"""What a decoder has to take for a block of drafts."""

HANDED = {
    "pixel_values", "pixel_values_videos", "image_sizes", "image_grid_thw", "video_grid_thw",
    "second_per_grid_ts", "batch_num_images", "pixel_attention_mask", "pixel_values_local",
    "num_local_patches",
}  # fmt: skip
"""Pixel arguments that `generate` hands to a method; it would encode the others first."""

SWITCHES = {"vision_feature_layer", "vision_feature_select_strategy", "interpolate_pos_encoding"}
"""Arguments beside the pixels that processors don't make, and that have their config's default."""

SCALED = ("dynamic", "longrope")
"""RoPE whose frequencies depend on how long a forward's sequence is: a block is not its steps."""


def unsuitable(model: Any) -> str | None:
    """Why a model can't be decoded by the generic adapter, as a predicate; `None` if it may be."""
    config, text = model.config, model.config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        return "is an encoder and a decoder, not a causal model"
    if getattr(model, "_is_stateful", False):
        return "keeps a state that can't be rolled back"
    return _layers(text) or _rope(model, text) or _signatures(model)


def _layers(text: Any) -> str | None:
    kinds = set(getattr(text, "layer_types", None) or ()) - {"full_attention"}
    if kinds:
        return f"has {'/'.join(sorted(kinds))} layers, whose state can't be rolled back"
    window = getattr(text, "sliding_window", None) if _slides(text) else None
    if window and window < (getattr(text, "max_position_embeddings", None) or window + 1):
        return f"has a sliding window of {window} tokens, which trees of drafts don't keep to"
    return None


def _slides(text: Any) -> bool:
    return bool(getattr(text, "use_sliding_window", True))


def _rope(model: Any, text: Any) -> str | None:
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    bodies = (model, getattr(model, "model", None))
    if "mrope_section" in rope or any(hasattr(body, "get_rope_index") for body in bodies):
        return "has positions of several axes (M-RoPE), which need an adapter of their own"
    kind = rope.get("rope_type", rope.get("type")) if isinstance(rope, dict) else None
    if kind in SCALED:
        return f"has '{kind}' RoPE, whose frequencies depend on the length of each forward"
    return None


def _signatures(model: Any) -> str | None:
    decoder = model.get_decoder()
    lacking = [name for name in DECODER if not _takes(decoder, name)]
    if lacking:
        return f"has a decoder that takes no {' and no '.join(lacking)}"
    if model.get_output_embeddings() is None:
        return "has no language-model head"
    encoded = _encoded(model)
    if encoded:
        return f"takes {', '.join(encoded)}, which generate() keeps from a method"
    return None


def _takes(module: Any, name: str) -> bool:
    parameters = inspect.signature(module.forward).parameters
    wild = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return wild or name in parameters


def _encoded(model: Any) -> list[str]:
    """Arguments that `generate` would use up before the method sees them."""
    if "mm_encoder_outputs" not in inspect.signature(model.forward).parameters:
        return []
    makers = [
        getattr(model.base_model, f"get_{kind}_features", None) for kind in ("image", "video")
    ]
    names = {
        parameter.name
        for maker in makers
        if maker is not None
        for parameter in inspect.signature(maker).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    return sorted(names - HANDED - SWITCHES)
