"""The files that NVIDIA publishes: `model.pt` and `config.json` of Cosmos-1.0-Autoregressive.

Sizes come from the tensors. What tensors can't say (positions, norms) comes from `config.json`
where it stands there, and from the published inference code where it doesn't.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...checks import check_keys
from ...errors import SoonerError, UnsupportedError
from ..base import complain
from ..checkpoint import count_parts, read_config, read_tensors, require_built
from .config import CosmosARConfig
from .model import CosmosARForCausalLM

FILES = ("model.safetensors", "model.pt")
TOP = {"tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attention.wq": "self_attn.q_proj", "attention.wk": "self_attn.k_proj",
    "attention.wv": "self_attn.v_proj", "attention.wo": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm", "attention.k_norm": "self_attn.k_norm",
    "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "feed_forward.w1": "mlp.gate_proj", "feed_forward.w2": "mlp.down_proj",
    "feed_forward.w3": "mlp.up_proj",
}  # fmt: skip
MEASURED = (
    "tok_embeddings", "layers.0.attention.wq", "layers.0.attention.wk", "layers.0.feed_forward.w1",
)  # fmt: skip
CONFIG_NAMES = {
    "n_heads": "num_attention_heads", "head_dim": "head_dim", "norm_eps": "rms_norm_eps",
    "rope_theta": "rope_theta", "video_latent_shape": "latent_shape",
    "apply_abs_pos_emb": "apply_abs_pos_emb",
}  # fmt: skip
BUILT = {"rope_dim": ("3D",), "norm_type": ("rmsnorm",), "pytorch_rope_version": ("v2",)}
YARN = ("yarn_scale", "yarn_beta_fast", "yarn_beta_slow", "original_latent_shape")
# Layers and width of the one published base model that is stretched, as its inference code has it.
STRETCHED = {(40, 5120): {"yarn_scale": 2.0, "yarn_beta_fast": 4.0, "yarn_beta_slow": 1.0,
                          "original_latent_shape": (3, 40, 64)}}  # fmt: skip

_complain = partial(complain, way_out="give a whole Cosmos autoregressive checkpoint")


def load_published(
    path: str | Path, dtype: torch.dtype | None = None, **overrides: Any
) -> CosmosARForCausalLM:
    """Load a checkpoint as it was published, in eval mode, on the CPU.

    Args:
        path: a folder with `model.pt` or `model.safetensors`, or one of these files.
            `config.json` beside it is read if it is there.
        dtype: dtype of the weights; as they are in the file when left out (bf16 as published).
        overrides: fields of `CosmosARConfig` that are known better.

    Raises:
        SoonerError: no such file; tensors missing, left over or of another size; a bad override.
        UnsupportedError: the checkpoint needs something that is not built in; says what.
    """
    path = Path(path)
    files = [path / name for name in FILES] if path.is_dir() else [path]
    if (file := next(filter(Path.is_file, files), None)) is None:
        raise SoonerError(
            f"no Cosmos checkpoint at {path}; give a folder with {' or '.join(FILES)}, or one of "
            "them"
        )
    state = _read(file)
    raw = read_config(file.parent)
    _refuse_what_is_not_built(file, state, raw)
    check_keys("CosmosARConfig field", overrides, CosmosARConfig)
    chosen = _sizes(file, state, raw) | overrides
    if raw.get("apply_yarn") and "yarn_scale" not in chosen:
        raise SoonerError(f"{file.parent}/config.json has no yarn_scale; pass yarn_scale=")
    with torch.device("meta"):
        model = CosmosARForCausalLM(CosmosARConfig(**chosen))
    names = published_names(model.config)
    _check(file, state, names, dict(model.named_parameters()))
    model.load_state_dict(
        {names[key]: tensor.to(dtype or tensor.dtype) for key, tensor in state.items()}, assign=True
    )
    model.config.dtype = model.dtype
    return model.eval()


def published_names(config: CosmosARConfig) -> dict[str, str]:
    """Returns names of all tensors: as published, without the prefix `model.`, to ours."""
    kinds = {
        published: ours
        for published, ours in LAYER.items()
        if config.use_qk_norm or not published.endswith(("q_norm", "k_norm"))
    }
    names = {f"{published}.weight": f"{ours}.weight" for published, ours in TOP.items()}
    for layer in range(config.num_hidden_layers):
        for published, ours in kinds.items():
            names[f"layers.{layer}.{published}.weight"] = f"model.layers.{layer}.{ours}.weight"
    return names


def _read(file: Path) -> dict[str, Tensor]:
    """Returns tensors by published name without prefix, and no extra state of kernels."""
    state = read_tensors(file).items()
    return {key.removeprefix("model."): value for key, value in state if "_extra_state" not in key}


def _refuse_what_is_not_built(file: Path, state: dict[str, Tensor], config: dict[str, Any]) -> None:
    if config.get("model_type") == CosmosARConfig.model_type:
        raise SoonerError(
            f"{file} was saved by transformers; load {file.parent} with "
            "CosmosARForCausalLM.from_pretrained"
        )
    if config.get("insert_cross_attn") or any("cross_attention" in key for key in state):
        raise UnsupportedError(
            f"{file} has cross-attention to a text (Cosmos Video2World), which is not built in; "
            "load a base model such as Cosmos-1.0-Autoregressive-4B"
        )
    require_built(file, config, BUILT)


def _sizes(file: Path, state: dict[str, Tensor], config: dict[str, Any]) -> dict[str, Any]:
    """Returns fields of the config, from the tensors first."""
    fields = {ours: config[key] for key, ours in CONFIG_NAMES.items() if key in config}
    needed = [f"{name}.weight" for name in MEASURED]
    _complain(file, "lacks", [key for key in needed if key not in state])
    embedding, queries, keys, up = (state[key].shape for key in needed)
    norm = state.get("layers.0.attention.q_norm.weight")
    head_dim = _head_dim(file, norm, queries[0], fields)
    sizes = {
        "vocab_size": embedding[0],
        "hidden_size": embedding[1],
        "intermediate_size": up[0],
        "num_hidden_layers": count_parts(state, "layers."),
        "num_attention_heads": queries[0] // head_dim,
        "num_key_value_heads": keys[0] // head_dim,
        "head_dim": head_dim,
        "use_qk_norm": norm is not None,
    }
    known = STRETCHED.get((sizes["num_hidden_layers"], sizes["hidden_size"]), {})
    stretched = {key: config[key] for key in YARN if config.get("apply_yarn") and key in config}
    return fields | known | stretched | sizes


def _head_dim(file: Path, norm: Tensor | None, width: int, config: dict[str, Any]) -> int:
    if norm is not None:
        return norm.shape[0]
    if "head_dim" in config:
        return int(config["head_dim"])
    if "num_attention_heads" in config:
        return width // int(config["num_attention_heads"])
    raise SoonerError(f"{file} has no head_dim; put a config.json with 'n_heads' beside it")


def _check(
    file: Path, state: dict[str, Tensor], names: dict[str, str], ours: dict[str, Tensor]
) -> None:
    _complain(file, "lacks", [key for key in names if key not in state])
    _complain(file, "has unknown", [key for key in state if key not in names])
    for key, name in names.items():
        if state[key].shape != ours[name].shape:
            raise SoonerError(
                f"{file} has {key} of {list(state[key].shape)}, but its sizes ask for "
                f"{list(ours[name].shape)}; check the overrides and config.json"
            )
