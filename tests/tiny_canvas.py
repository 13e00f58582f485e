"""Tiny random models that draw, and processed prompts for them."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import JanusConfig, JanusForConditionalGeneration, LlamaConfig
from transformers.models.janus.configuration_janus import JanusVisionConfig, JanusVQVAEConfig

import sooner
from sooner.models import Canvas

VOCAB, BOS, PAD, BOI, IMAGE = 64, 60, 61, 62, 63
SIDE, CODES = 4, 24


@functools.cache
def janus(seed: int = 0, layers: int = 3) -> Any:
    """Draws 4 x 4 codes of 24."""
    vision = JanusVisionConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=16,
        patch_size=4,
        num_image_tokens=SIDE * SIDE,
    )
    vq = JanusVQVAEConfig(
        embed_dim=8,
        num_embeddings=CODES,
        latent_channels=32,
        num_patches=SIDE,
        base_channels=32,
        channel_multiplier=[1, 1, 1],
        num_res_blocks=1,
        projection_dim=48,
        image_token_embed_dim=48,
    )
    text = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    torch.manual_seed(seed)
    config = JanusConfig(text_config=text, vision_config=vision, vq_config=vq, image_token_id=IMAGE)
    model = JanusForConditionalGeneration(config).eval()
    scale = model.model.generation_head.vision_head.weight
    scale.data.mul_(20)  # random heads are nearly flat; a parity test wants clear winners
    settings = model.generation_config
    settings.bos_token_id, settings.pad_token_id = BOS, PAD
    settings.generation_kwargs = {"boi_token_id": BOI}
    return model


def prompts(rows: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Prompts of different lengths, padded on the left, ending where the picture begins."""
    generator = torch.Generator().manual_seed(seed)
    width = 5 + rows
    ids = torch.randint(0, BOS, (rows, width), generator=generator)
    mask = torch.ones_like(ids)
    ids[:, -1] = BOI
    for row in range(rows):
        ids[row, :row], mask[row, :row] = PAD, 0
        ids[row, row] = BOS
    return {"input_ids": ids, "attention_mask": mask}


def canvas(family: str = "janus") -> Canvas:
    return sooner.canvas({"janus": janus}[family]())
