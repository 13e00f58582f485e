"""Reads and writes the weights of DFlash drafters, by the names under which they are published."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ...errors import SoonerError
from ...io import replacing
from ..eagle.published import check_names, read_weights
from ..eagle.specforge import WEIGHTS
from .config import DFlashConfig
from .denoiser import DFlashModel

RENAMED = (
    (r"^(?:model|draft_model)\.", ""),
    (r"^encoder\.fc\.", "fc."),  # transformers' assistants
    (r"^encoder\.output_norm_enc\.", "hidden_norm."),
)
"""Other names of the same tensors."""

DERIVED = re.compile(r"(rotary_emb\.inv_freq|^verifier_lm_head\.weight|^verifier_norm\.weight)$")
"""What some files hold though it follows from the config, or is the target's and only trained with;
not read."""

FUSED = {
    "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Projections that vLLM keeps in one tensor, one below the other."""


def load(
    folder: Path | str, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
) -> DFlashModel:
    """Returns a drafter from a folder of `config.json` and safetensors.

    Raises:
        SoonerError: files that can't be read; a tensor that is unknown, missing or of another
            shape, by its name.
        UnsupportedError: positions of several axes.
    """
    home = Path(folder)
    config = DFlashConfig.load(home)
    model = DFlashModel(config)
    fill(model, read_weights(home), str(home))
    return model.to(device, dtype).eval()


def save(model: DFlashModel, folder: Path | str, dtype: torch.dtype | None = None) -> None:
    """Write `config.json` and `model.safetensors` in z-lab's layout, each whole or not at all.

    Args:
        dtype: of the file; by default the drafter's own.
    """
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    weights = {
        name: value.detach().to("cpu", dtype or value.dtype).contiguous()
        for name, value in model.state_dict().items()
    }
    with replacing(home / WEIGHTS) as part:
        save_file(weights, part, metadata={"format": "pt"})
    model.config.save(home)


def fill(model: DFlashModel, tensors: Mapping[str, Tensor], where: str) -> None:
    """Put tensors into a drafter.

    Args:
        tensors: by their published names.
        where: they are from, for errors.

    Raises:
        SoonerError: names what is unknown, missing or of another shape.
    """
    weights = _split(_named(tensors, where), model.config)
    _add_vocabulary(model, weights, where)
    check_names(Path(where), model, {n: (n, w) for n, w in weights.items()}, "DFlash drafter")
    model.load_state_dict(dict(weights))


def _named(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Returns the weights by our names, without those that are derived."""
    result: dict[str, Tensor] = {}
    for name, value in tensors.items():
        plain = name
        for pattern, other in RENAMED:
            plain = re.sub(pattern, other, plain)
        if DERIVED.search(plain):
            continue
        if plain in result:
            raise SoonerError(
                f"drafter '{where}' has '{plain}' under two names; give a folder of one drafter"
            )
        result[plain] = value
    return result


def _split(tensors: dict[str, Tensor], config: DFlashConfig) -> dict[str, Tensor]:
    """Returns the weights with fused projections split."""
    kv = config.num_key_value_heads * config.head_dim
    rows = {
        "self_attn.qkv_proj": [config.num_attention_heads * config.head_dim, kv, kv],
        "mlp.gate_up_proj": [config.intermediate_size] * 2,
    }
    result: dict[str, Tensor] = {}
    for name, value in tensors.items():
        fused = next((key for key in FUSED if f".{key}." in name), None)
        if fused is None or value.shape[0] != sum(rows[fused]):
            result[name] = value
            continue
        for part, piece in zip(FUSED[fused], value.split(rows[fused]), strict=True):
            result[name.replace(fused, part)] = piece
    return result


def _add_vocabulary(model: DFlashModel, weights: dict[str, Tensor], where: str) -> None:
    """Make room for the embedding, the head and the mapping that a file of speculators' brings."""
    config, mapping = model.config, weights.get("d2t")
    weights.pop("t2d", None)  # says what d2t says
    if "embed_tokens.weight" in weights:
        rows, width = weights["embed_tokens.weight"].shape
        model.embed_tokens = nn.Embedding(rows, width)
    if mapping is None:
        if config.draft_vocab_size not in (None, config.vocab_size):
            raise SoonerError(
                f"drafter '{where}' has a vocabulary of {config.draft_vocab_size} and no d2t; give "
                "the whole folder"
            )
        if "lm_head.weight" in weights:
            model.lm_head = _head(weights["lm_head.weight"])
        return
    if "lm_head.weight" not in weights:
        raise SoonerError(
            f"drafter '{where}' has d2t but no lm_head.weight for its {len(mapping)} tokens; give "
            "the whole folder"
        )
    model.lm_head = _head(weights["lm_head.weight"])
    if len(mapping) != len(weights["lm_head.weight"]):
        raise SoonerError(
            f"tensor 'd2t' of drafter '{where}' is {list(mapping.shape)}, its lm_head has "
            f"{len(weights['lm_head.weight'])} rows; give the files of one drafter"
        )
    weights["d2t"] = mapping.long()
    ids = weights["d2t"] + torch.arange(len(mapping))
    if int(ids.min()) < 0 or len(ids.unique()) != len(ids):
        raise SoonerError(
            f"tensor 'd2t' of drafter '{where}' maps two draft ids to one token, or to none; give "
            "the files of one drafter"
        )
    model.d2t = torch.zeros_like(weights["d2t"])


def _head(weight: Tensor) -> nn.Linear:
    return nn.Linear(weight.shape[1], weight.shape[0], bias=False)
