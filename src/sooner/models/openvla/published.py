"""Names and sizes of a published OpenVLA checkpoint: timm's and Llama's tensors, and where they go.

What is known of the two towers, from timm 0.9's `vision_transformer.py` (the only versions that
OpenVLA's code accepts) and OpenVLA's `modeling_prismatic.py`:

- `vit_large_patch14_reg4_dinov2`: 16 heads, 4 registers, layer scale, position embeddings for
  patches alone (the class token has its own folded in), in the order class, registers, patches.
- `vit_so400m_patch14_siglip_*`: 16 heads, no class token, MLP of 3.7362 times the width, and the
  exact GELU, where transformers' SigLIP has the tanh form.
- both: layer norms with epsilon 1e-6; query, key and value in one matrix.
- a tower's features are the states behind the last block but one, without final norm and without
  prefix tokens. So the last block, the norms and SigLIP's pooling head have no use.
- OpenVLA's code renames layer scale's `gamma` to `scale_factor`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from .model import DINO_PROJECTIONS

DINO, SIGLIP = "vision_backbone.featurizer.", "vision_backbone.fused_featurizer."
HEADS = {
    "vit_large_patch14_reg4_dinov2": 16,
    "vit_so400m_patch14_siglip_224": 16,
    "vit_so400m_patch14_siglip_384": 16,
}
"""Attention heads by timm id, which no tensor tells."""
DINO_TOP = {
    "patch_embed.proj.weight": "embeddings.patch_embeddings.projection.weight",
    "patch_embed.proj.bias": "embeddings.patch_embeddings.projection.bias",
    "cls_token": "embeddings.cls_token",
    "reg_token": "embeddings.register_tokens",
    "pos_embed": "embeddings.position_embeddings",
}
SIGLIP_TOP = {
    "patch_embed.proj.weight": "embeddings.patch_embedding.weight",
    "patch_embed.proj.bias": "embeddings.patch_embedding.bias",
    "pos_embed": "embeddings.position_embedding.weight",
}
DINO_BLOCK = {
    "norm1": "norm1",
    "norm2": "norm2",
    "attn.proj": f"attention.{DINO_PROJECTIONS[3]}",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
SIGLIP_BLOCK = {
    "norm1": "layer_norm1",
    "norm2": "layer_norm2",
    "attn.proj": "self_attn.out_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}
SPLIT = {
    DINO: tuple(f"attention.{name}" for name in DINO_PROJECTIONS[:3]),
    SIGLIP: ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
}
# Older Llama checkpoints hold RoPE's frequencies, which follow from the config.
NO_USE = re.compile(r"language_model\.model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")

Move = tuple[str, Callable[[Tensor], Tensor]]
"""The name of one of our tensors, and how it is made of a published one."""


def moves(depths: dict[str, int], hidden: int, text_layers: int) -> dict[str, list[Move]]:
    """Returns every published tensor that is used, by name, and what becomes of it.

    Args:
        depths: published blocks of each tower, by `DINO` and `SIGLIP`.
        hidden: width of DINOv2.
        text_layers: of the decoder.
    """
    made = {
        **_dino(depths[DINO], hidden),
        **_siglip(depths[SIGLIP]),
        **_language(text_layers),
    }
    for layer in ("fc1", "fc2", "fc3"):
        for kind in ("weight", "bias"):
            made[f"projector.{layer}.{kind}"] = [(f"model.projector.{layer}.{kind}", _same)]
    return made


def is_unused(name: str, depths: dict[str, int]) -> bool:
    """Returns whether a published tensor has no part in an action: last blocks, norms, pooling."""
    if NO_USE.fullmatch(name):
        return True
    for tower, depth in depths.items():
        if name.startswith(tower):
            last = (f"blocks.{depth - 1}.", "norm.", "attn_pool.")
            return name.removeprefix(tower).startswith(last)
    return False


def current(name: str) -> str:
    """Returns a published name with today's word for layer scale, which is timm's as well."""
    return re.sub(r"\.(ls[12])\.gamma$", r".\1.scale_factor", name)


def depth(names: list[str], tower: str) -> int:
    """Published blocks of a tower; 0 if there are none."""
    matches = [re.match(rf"{re.escape(tower)}blocks\.(\d+)\.", name) for name in names]
    return 1 + max((int(match[1]) for match in matches if match), default=-1)


def _dino(blocks: int, hidden: int) -> dict[str, list[Move]]:
    made: dict[str, list[Move]] = {}
    for name, ours in DINO_TOP.items():
        make = _with_class_place if name == "pos_embed" else _same
        made[DINO + name] = [(f"model.{DINO}{ours}", make)]
    for block in range(blocks - 1):
        source, ours = f"{DINO}blocks.{block}.", f"model.{DINO}encoder.layer.{block}."
        made |= dict(_block(source, ours, DINO_BLOCK, SPLIT[DINO]))
        for scale in "12":
            name = f"{source}ls{scale}.scale_factor"
            made[name] = [(f"{ours}layer_scale{scale}.lambda1", _same)]
    # Only its own pretraining masks patches; transformers has the token nevertheless.
    made[DINO + "cls_token"].append(
        (f"model.{DINO}embeddings.mask_token", lambda token: token.new_zeros(1, hidden))
    )
    return made


def _siglip(blocks: int) -> dict[str, list[Move]]:
    made: dict[str, list[Move]] = {}
    for name, ours in SIGLIP_TOP.items():
        make = _table if name == "pos_embed" else _same
        made[SIGLIP + name] = [(f"model.{SIGLIP}{ours}", make)]
    for block in range(blocks - 1):
        source, ours = f"{SIGLIP}blocks.{block}.", f"model.{SIGLIP}encoder.layers.{block}."
        made |= dict(_block(source, ours, SIGLIP_BLOCK, SPLIT[SIGLIP]))
    return made


def _block(
    source: str, ours: str, names: dict[str, str], split: tuple[str, ...]
) -> Iterator[tuple[str, list[Move]]]:
    for kind in ("weight", "bias"):
        for name, target in names.items():
            yield f"{source}{name}.{kind}", [(f"{ours}{target}.{kind}", _same)]
        yield (
            f"{source}attn.qkv.{kind}",
            [(f"{ours}{part}.{kind}", _third(place)) for place, part in enumerate(split)],
        )


def _language(layers: int) -> dict[str, list[Move]]:
    kinds = [f"self_attn.{name}_proj" for name in "qkvo"]
    kinds += [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    kinds += ["input_layernorm", "post_attention_layernorm"]
    names = ["embed_tokens", "norm"]
    names += [f"layers.{layer}.{kind}" for layer in range(layers) for kind in kinds]
    made: dict[str, list[Move]] = {
        f"language_model.model.{name}.weight": [(f"model.language_model.{name}.weight", _same)]
        for name in names
    }
    made["language_model.lm_head.weight"] = [("lm_head.weight", _same)]
    return made


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _table(positions: Tensor) -> Tensor:
    return positions[0]  # [1, patches, width] to [patches, width]


def _with_class_place(positions: Tensor) -> Tensor:
    """`[1, patches, width]` and a place of zeros in front, which transformers adds to the class."""
    return torch.cat([torch.zeros_like(positions[:, :1]), positions], dim=1)


def _third(place: int) -> Callable[[Tensor], Tensor]:
    return lambda stacked: stacked.chunk(3)[place]
