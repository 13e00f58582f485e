"""The image miniature's shapes, as real Hugging Face configs of Janus.

The decoder is deep and narrow, so that one forward costs nearly the same for 1 token or 16, as
it does for large models on GPUs. The SigLIP tower is never used to make pictures, but the class
has it and reads the number of image tokens from its config, so it is as small as can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    JanusConfig,
    JanusForConditionalGeneration,
    JanusVisionConfig,
    JanusVQVAEConfig,
    LlamaConfig,
)
from transformers.models.janus.modeling_janus import JanusVQVAE

from sooner.errors import SoonerError

from . import words, world

PATCH = 4  # pixels along a side of what one code stands for: two halvings
GRID = world.SIDE // PATCH  # codes along a side
TOKENS = GRID * GRID
GUIDANCE = 2.0  # the best of 1.5 to 7 for the trained weights: more breaks pictures up
# RoPE knows a raster only as a line. Frequency i of a head of 32 has the period
# 2 pi base^(i / 16); this base gives i = 3 the period 16, one row: "the code above" is then
# one rotation, and columns are heard from the first steps on.
ROPE_BASE = 146.0


@dataclass(frozen=True)
class CodesShape:
    """Sizes of the VQ autoencoder. GroupNorm wants channels in multiples of 32, and `patches`
    wants the last level twice as wide as the one before."""

    entries: int = 512
    dim: int = 8
    channels: int = 32
    multiplier: tuple[int, ...] = (1, 1, 2)
    latent: int = 64

    def __post_init__(self) -> None:
        *_, before, last = self.multiplier
        if len(self.multiplier) != 3 or last != 2 * before or self.latent < self.channels * last:
            raise SoonerError(
                f"multiplier is {self.multiplier} and latent is {self.latent}; it is three levels, "
                f"the last twice as wide as the one before and no wider than latent"
            )


@dataclass(frozen=True)
class ImageShape:
    """Sizes of the text-to-image decoder; `layers` is the depth to end with."""

    layers: int = 24
    width: int = 96
    heads: int = 3
    kv_heads: int = 3
    intermediate: int = 192


def codes_config(shape: CodesShape, width: int = 128) -> JanusVQVAEConfig:
    """Config of the autoencoder; `width` is the decoder's, which reads its codes."""
    return JanusVQVAEConfig(
        embed_dim=shape.dim,
        num_embeddings=shape.entries,
        latent_channels=shape.latent,
        base_channels=shape.channels,
        channel_multiplier=list(shape.multiplier),
        num_res_blocks=1,
        num_patches=GRID,
        projection_dim=width,
        image_token_embed_dim=width,
    )


def build_codes(shape: CodesShape) -> JanusVQVAE:
    """A fresh fp32 autoencoder, weights from torch's global generator."""
    return JanusVQVAE(codes_config(shape)).float()


def build_config(shape: ImageShape, codes: JanusVQVAEConfig) -> JanusConfig:
    """The checkpoint's config around the config of trained codes."""
    ids = words.ids()
    text = LlamaConfig(
        vocab_size=len(ids),
        hidden_size=shape.width,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.width // shape.heads,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_BASE},
        bos_token_id=ids[words.BOS],
        eos_token_id=ids[words.EOS],
        pad_token_id=ids[words.PAD],
    )
    vision = JanusVisionConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        mlp_ratio=2.0,
        image_size=world.SIDE,
        patch_size=PATCH,
        projection_dim=shape.width,
        num_image_tokens=TOKENS,
    )
    read: dict[str, Any] = codes.to_dict()
    read.update(projection_dim=shape.width, image_token_embed_dim=shape.width)
    return JanusConfig(
        text_config=text,
        vision_config=vision,
        vq_config=JanusVQVAEConfig(**read),
        image_token_id=ids[words.IMAGE],
    )


def build_model(shape: ImageShape, codes: JanusVQVAE) -> JanusForConditionalGeneration:
    """A fresh fp32 model with trained codes inside; the rest from torch's global generator."""
    ids = words.ids()
    model = JanusForConditionalGeneration(build_config(shape, codes.config)).float()
    model.model.vqmodel.load_state_dict(codes.state_dict())
    # The decoder reads codes by what they look like from the start, as codebook directions.
    book = torch.nn.functional.normalize(codes.quantize.embedding.weight.detach(), dim=-1)
    model.model.generation_embeddings.weight.data.copy_(book)
    # Made anew: in a config derived from the model's, HF drops `generation_kwargs` on loading.
    model.generation_config = GenerationConfig(
        bos_token_id=ids[words.BOS],
        eos_token_id=ids[words.EOS],
        pad_token_id=ids[words.PAD],
        generation_kwargs={"boi_token_id": ids[words.BOI]},
        do_sample=True,
        temperature=1.0,
        top_k=0,  # the whole distribution; HF's default would cut it to 50 codes
        top_p=1.0,
        guidance_scale=GUIDANCE,
        max_length=512,
    )
    return model
