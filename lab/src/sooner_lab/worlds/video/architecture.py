"""The two models' shapes, as real Hugging Face configs.

The target is deep and narrow, so that one forward costs nearly the same for 1 token or 16, as
it does for large models on GPUs; the draft is the same family with four layers. Their
vocabularies are padded to different sizes on purpose, as those of real pairs are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any, Protocol

import torch
from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)

from ..training import deepen
from . import words

IMAGE_SIDE = 112
PATCH = 14
POOLED = 4  # tokens along a side of a video frame, after the 2x2 pooling
MAX_POSITIONS = 4096
LOW = 3 / 7  # of a deepened decoder: a third of its depth then holds three of four old layers


class Sizes(Protocol):
    """Sizes of a LLaVA-OneVision of any world; see `VideoShape`."""

    @property
    def layers(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def heads(self) -> int: ...

    @property
    def kv_heads(self) -> int: ...

    @property
    def intermediate(self) -> int: ...

    @property
    def vocab(self) -> int: ...

    @property
    def vision_layers(self) -> int: ...

    @property
    def vision_width(self) -> int: ...

    @property
    def vision_heads(self) -> int: ...


@dataclass(frozen=True)
class VideoShape:
    """Sizes of one miniature. `vocab` is the padded size and must hold every token."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    vision_layers: int
    vision_width: int
    vision_heads: int


TARGET = VideoShape(28, 128, 4, 2, 256, 256, 3, 96, 4)
DRAFT = VideoShape(4, 96, 3, 1, 192, 192, 2, 64, 4)


def build_config(
    shape: Sizes,
    vocabulary: Sequence[str] | None = None,
    side: int = IMAGE_SIDE,
    patch: int = PATCH,
    **text: Any,
) -> LlavaOnevisionConfig:
    """The checkpoint's config.

    Args:
        vocabulary: all tokens in the order of their ids; `None` is the miniature's.
        side, patch: pixels of a frame's and of a patch's side.
        text: further options of the decoder's config.

    Raises:
        ValueError: `shape.vocab` is smaller than the vocabulary.
    """
    tokens = words.vocabulary() if vocabulary is None else vocabulary
    ids = {token: index for index, token in enumerate(tokens)}
    if shape.vocab < len(ids):
        raise ValueError(f"vocab is {shape.vocab}, but the tokenizer has {len(ids)} tokens")
    options: dict[str, Any] = {"max_position_embeddings": MAX_POSITIONS, **text}
    decoder = Qwen2Config(
        vocab_size=shape.vocab,
        hidden_size=shape.width,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=ids[words.END],
        pad_token_id=ids[words.PAD],
        **options,
    )
    vision = SiglipVisionConfig(
        hidden_size=shape.vision_width,
        intermediate_size=2 * shape.vision_width,
        num_hidden_layers=shape.vision_layers,
        num_attention_heads=shape.vision_heads,
        image_size=side,
        patch_size=patch,
        vision_use_head=False,
    )
    return LlavaOnevisionConfig(
        vision_config=vision,
        text_config=decoder,
        image_token_index=ids[words.IMAGE],
        video_token_index=ids[words.VIDEO],
        image_grid_pinpoints=[[side, side]],
        tie_word_embeddings=False,
    )


def build_model(shape: VideoShape) -> LlavaOnevisionForConditionalGeneration:
    """A fresh fp32 model; weights come from torch's global generator, as everywhere in HF."""
    return from_config(build_config(shape))


def from_config(config: LlavaOnevisionConfig) -> LlavaOnevisionForConditionalGeneration:
    """A fresh fp32 model of a config of `build_config`, its patches placed, greedy."""
    model = LlavaOnevisionForConditionalGeneration(config).float()
    place_patches(model)
    decoder: Any = config.text_config
    model.generation_config.eos_token_id = decoder.eos_token_id
    model.generation_config.pad_token_id = decoder.pad_token_id
    model.generation_config.do_sample = False
    return model


def place_patches(model: LlavaOnevisionForConditionalGeneration) -> None:
    """Initialise the tower's learned positions as 2-D sines and cosines of the patches' norm.

    HF's initial positions have a tenth of that norm, and the tower needs hundreds of steps to use
    them.
    """
    table = model.model.vision_tower.embeddings.position_embedding.weight  # [patches, width]
    side = isqrt(table.shape[0])
    quarter = table.shape[1] // 4
    rates = torch.pi * 2.0 ** torch.linspace(-1, 2, quarter) / side
    angles = torch.arange(side)[:, None] * rates  # [side, quarter]
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)  # [side, half]
    rows, columns = waves.repeat_interleave(side, 0), waves.repeat(side, 1)
    with torch.no_grad():
        table[:, : 4 * quarter] = torch.cat([rows, columns], dim=1)


def parameters(model: torch.nn.Module) -> int:
    """Number of weights, each counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def grow(model: LlavaOnevisionForConditionalGeneration, layers: int) -> None:
    """Deepen the decoder in place, see `training.deepen`."""
    deepen(model.model.language_model, layers, LOW)
