"""EAGLE-3 heads in the layouts that people publish: SafeAILab's, SpecForge's, speculators'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from ...errors import UnsupportedError
from ..published import CONFIG_KEY, layer_sizes, needed, renamed, write
from .config import Eagle3Config

ARCHITECTURE = "LlamaForCausalLMEagle3"
RENAMES = (("midlayer.", "layer."), ("layers.0.", "layer."))
FIELDS = ("temperature", "target", "provenance")
"""Fields of a head's config that only sooner writes."""


def is_eagle3(config: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Returns whether a folder holds an EAGLE-3 head.

    Args:
        config: its config.json.
        names: of its tensors.
    """
    if config.get("speculators_model_type") == "eagle3":
        return True
    kinds = config.get("architectures") or []
    if any("eagle3" in str(kind).lower() for kind in kinds):
        return True
    # SafeAILab's first heads name plain Llama; the layer on twice the width tells them.
    return "draft_vocab_size" in config and {"midlayer.hidden_norm.weight", "d2t"} <= set(names)


def read_eagle3_config(config: Mapping[str, Any], names: set[str], where: Path) -> Eagle3Config:
    """Returns what a config.json of either layout means.

    Args:
        config: its content.
        names: of the tensors beside it, which tell of biases and norms.
        where: its path, for errors.

    Raises:
        SoonerError: a key is missing.
        UnsupportedError: an option that can't be run.
    """
    is_speculators = "speculators_model_type" in config
    layer = dict(config["transformer_layer_config"] if is_speculators else config)
    _check_options(config, layer)
    sizes = layer_sizes(layer, where)
    rope = dict(layer.get("rope_parameters") or layer.get("rope_scaling") or {})
    rope["rope_type"] = rope.pop("type", None) or rope.get("rope_type") or "default"
    if rope["rope_type"] == "mrope":
        rope["rope_type"] = "default"
    if (theta := layer.get("rope_theta")) is not None:
        rope.setdefault("rope_theta", float(theta))
    drafted = config.get("draft_vocab_size")
    return Eagle3Config(
        **sizes,
        vocab_size=int(needed(layer, "vocab_size", where)),
        draft_vocab_size=None if drafted is None else int(drafted),
        target_hidden_size=int(config.get("target_hidden_size") or sizes["hidden_size"]),
        layer_ids=_layer_ids(config, is_speculators),
        rope=rope,
        norm_before_residual=bool(config.get("norm_before_residual")),
        norm_before_fc=bool(config.get("norm_before_fc")),
        attention_bias="layer.self_attn.q_proj.bias" in names,
        mlp_bias="layer.mlp.up_proj.bias" in names,
        fc_bias="fc.bias" in names,
        qk_norm="layer.self_attn.q_norm.weight" in names,
        max_positions=int(layer.get("max_position_embeddings") or 2048),
        **sooner_fields(config),
    )


def sooner_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what sooner kept in a published config.json: temperature, target and provenance."""
    fields = config.get(CONFIG_KEY) or {}
    return {name: fields[name] for name in FIELDS if name in fields}


def _layer_ids(config: Mapping[str, Any], is_speculators: bool) -> tuple[int, ...] | None:
    """`hidden_states` indices that a head reads; `None` where the config names none.

    Speculators' number `k` is `hidden_states[k]`. SpecForge's and SGLang's explicit number `i` is
    what layer `i` gives, `hidden_states[i + 1]`; their default is not shifted.
    """
    ids = config.get("eagle_aux_hidden_state_layer_ids")
    shift = 0 if is_speculators else 1
    if ids is None:
        ids = (config.get("eagle_config") or {}).get("eagle_aux_hidden_state_layer_ids")
    if ids is None:
        return None
    if len(ids) != 3:
        raise UnsupportedError(
            f"EAGLE-3 head: eagle_aux_hidden_state_layer_ids is {list(ids)}; it must name three "
            "layers, as `fc` reads three"
        )
    return tuple(int(number) + shift for number in ids)


def _check_options(config: Mapping[str, Any], layer: Mapping[str, Any]) -> None:
    """Refuse what would change the numbers and is not computed here."""
    eagle = config.get("eagle_config") or {}
    layers = layer.get("num_hidden_layers", 1)
    kinds = set(layer.get("layer_types") or ["full_attention"]) - {"full_attention"}
    refused = {
        f"num_hidden_layers {layers}; one layer is run": layers != 1,
        f"hidden_act '{layer.get('hidden_act')}'; SiLU is run": layer.get("hidden_act", "silu")
        != "silu",
        "use_aux_hidden_state false, a head on the last states alone": not eagle.get(
            "use_aux_hidden_state", True
        ),
        f"logit_scale {config.get('logit_scale')}": config.get("logit_scale", 1.0) != 1.0,
        f"{'/'.join(sorted(kinds))} layers; full attention is run": bool(kinds)
        or bool(layer.get("use_sliding_window")),
        "quantised weights; publish them as floats": bool(config.get("quantization_config")),
        "a partial rotation (partial_rotary_factor)": layer.get("partial_rotary_factor", 1.0) != 1,
    }
    for option, is_so in refused.items():
        if is_so:
            raise UnsupportedError(f"EAGLE-3 head: its config says {option}")


def save_eagle3(head: Any, folder: Path | str, dtype: torch.dtype | None = None) -> None:
    """Write a head in SpecForge's layout, as SGLang and vLLM read it.

    Args:
        head: with layer ids of its own.
        folder: gets `config.json` and `model.safetensors`, each whole or not at all.
        dtype: of the file; by default the head's own.
    """
    config, ids = head.config, head.token_ids.cpu()
    tensors = {
        renamed(name, [("layer.", "midlayer.")]): value for name, value in head.state_dict().items()
    }
    tensors["d2t"] = ids - torch.arange(len(ids))
    tensors["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    rope = dict(config.rope)
    theta = rope.pop("rope_theta", 10_000.0)
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
             "head_dim", "rms_norm_eps", "attention_bias", "mlp_bias", "vocab_size")  # fmt: skip
    content: dict[str, Any] = {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_act": "silu",
        "num_hidden_layers": 1,
        **{name: getattr(config, name) for name in names},
        "rope_theta": theta,
        "rope_scaling": None if rope == {"rope_type": "default"} else rope,
        "max_position_embeddings": config.max_positions,
        "tie_word_embeddings": False,
        "draft_vocab_size": len(ids),
        "target_hidden_size": config.target_hidden_size or config.hidden_size,
        "torch_dtype": str(dtype or head.dtype).removeprefix("torch."),
        "use_cache": True,
        CONFIG_KEY: {name: getattr(config, name) for name in FIELDS},
    }
    if config.layer_ids is not None:  # layer i gives hidden_states[i + 1]
        below = [number - 1 for number in config.layer_ids]
        content["eagle_config"] = {
            "eagle_aux_hidden_state_layer_ids": below, "use_aux_hidden_state": True,
        }  # fmt: skip
    write(folder, content, tensors, dtype)
