"""Writes EAGLE-3 heads in SpecForge's layout, as SGLang and vLLM read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from ...io import replacing, write_json

ARCHITECTURE = "LlamaForCausalLMEagle3"
WEIGHTS = "model.safetensors"
CONFIG_KEY = "sooner"
"""Key of config.json under which sooner keeps what no published layout has a place for."""


def save_eagle3(head: Any, folder: Path | str, dtype: torch.dtype | None = None) -> None:
    """Write a head in SpecForge's layout, as SGLang and vLLM read it.

    Args:
        head: with layer ids of its own.
        folder: gets `config.json` and `model.safetensors`, each whole or not at all.
        dtype: of the file; by default the head's own.
    """
    home, config = Path(folder), head.config
    home.mkdir(parents=True, exist_ok=True)
    weights = {
        name.replace("layer.", "midlayer.", 1) if name.startswith("layer.") else name:
        value.detach().to("cpu", dtype or value.dtype).contiguous()
        for name, value in head.state_dict().items()
    }  # fmt: skip
    ids = head.token_ids.cpu()
    weights["d2t"] = ids - torch.arange(len(ids))
    weights["t2d"] = torch.zeros(config.vocab_size, dtype=torch.bool).index_fill(0, ids, True)
    with replacing(home / WEIGHTS) as part:
        save_file(weights, part, metadata={"format": "pt"})
    rope = dict(config.rope)
    theta = rope.pop("rope_theta", 10_000.0)
    is_plain = rope == {"rope_type": "default"}
    metadata: dict[str, Any] = {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "num_hidden_layers": 1,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": theta,
        "rope_scaling": None if is_plain else rope,
        "max_position_embeddings": config.max_positions,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "tie_word_embeddings": False,
        "vocab_size": config.vocab_size,
        "draft_vocab_size": len(ids),
        "target_hidden_size": config.target_hidden_size or config.hidden_size,
        "torch_dtype": str(dtype or head.dtype).removeprefix("torch."),
        "use_cache": True,
        CONFIG_KEY: {
            name: getattr(config, name) for name in ("temperature", "target", "provenance")
        },
    }
    if config.layer_ids is not None:  # layer i gives hidden_states[i + 1]
        below = [number - 1 for number in config.layer_ids]
        metadata["eagle_config"] = {
            "eagle_aux_hidden_state_layer_ids": below, "use_aux_hidden_state": True,
        }  # fmt: skip
    write_json(metadata, home / "config.json")
