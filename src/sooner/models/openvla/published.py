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
from collections.abc import Callable, Iterable

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
PARTS = tuple(dict.fromkeys((*DINO_PROJECTIONS[:3], "q_proj", "k_proj", "v_proj")))
"""Queries, keys and values of DINOv2, then of SigLIP."""
NAMES = (
    (r"^model\.language_model\.", "language_model.model."),
    (r"^lm_head\.", "language_model.lm_head."),
    (r"^model\.", ""),
)
"""Our names, and what stands in their places in a published checkpoint."""
TOWER_NAMES = (
    (r"embeddings\.patch_embeddings?(\.projection)?\.", "patch_embed.proj."),
    (r"embeddings\.(position_embeddings|position_embedding\.weight)$", "pos_embed"),
    (r"embeddings\.register_tokens$", "reg_token"),
    # Only its own pretraining masks patches; transformers has the token nevertheless.
    (r"embeddings\.(cls|mask)_token$", "cls_token"),
    (r"encoder\.layers?\.", "blocks."),
    (r"layer_norm(\d)\.", r"norm\1."),
    (r"layer_scale(\d)\.lambda1$", r"ls\1.scale_factor"),
    (rf"(self_attn\.out_proj|attention\.{re.escape(DINO_PROJECTIONS[3])})\.", "attn.proj."),
    (rf"(self_attn|attention)\.({'|'.join(map(re.escape, PARTS))})\.", "attn.qkv."),
)
"""Our names within a tower, and what stands in their places."""
# Older Llama checkpoints hold RoPE's frequencies, which follow from the config.
NO_USE = re.compile(r"language_model\.model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")

Move = tuple[str, Callable[[Tensor], Tensor]]
"""The name of one of our tensors, and how it is made of a published one."""


def moves(names: Iterable[str]) -> dict[str, list[Move]]:
    """Returns every published tensor that is used, by name, and what becomes of it.

    Args:
        names: of all of our tensors.
    """
    made: dict[str, list[Move]] = {}
    for name in names:
        source = _renamed(name, NAMES)
        if source.startswith((DINO, SIGLIP)):
            source = _renamed(source, TOWER_NAMES)
        made.setdefault(source, []).append((name, _maker(name)))
    return made


def _renamed(name: str, rules: Iterable[tuple[str, str]]) -> str:
    for ours, published in rules:
        name = re.sub(ours, published, name)
    return name


def _maker(name: str) -> Callable[[Tensor], Tensor]:
    """Returns what makes our tensor of the published one."""
    if name.endswith("position_embeddings"):
        # A place of zeros in front of [1, patches, width], which transformers adds to the class.
        return lambda positions: torch.cat([torch.zeros_like(positions[:, :1]), positions], dim=1)
    if name.endswith("position_embedding.weight"):
        return lambda positions: positions[0]  # [1, patches, width] to [patches, width]
    if name.endswith("mask_token"):
        return lambda token: torch.zeros_like(token[0])
    part = next((at % 3 for at, part in enumerate(PARTS) if f".{part}." in name), None)
    is_text = "language_model" in name
    return lambda tensor: tensor if part is None or is_text else tensor.chunk(3)[part]


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
