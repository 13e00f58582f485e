"""The two models' shapes, as real Hugging Face configs.

The target is deep and narrow, so that one forward costs nearly the same for 1 token or 16, as
it does for large models on GPUs; the draft is the same family with four layers. Their
vocabularies are padded to different sizes on purpose, as those of real pairs are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import (
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
    SiglipVisionConfig,
)

from . import words

IMAGE_SIDE = 112
PATCH = 14
POOLED = 4  # tokens along a side of a video frame, after the 2x2 pooling
MAX_POSITIONS = 4096


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


def build_config(shape: VideoShape) -> LlavaOnevisionConfig:
    """The checkpoint's config.

    Raises:
        ValueError: `shape.vocab` is smaller than the vocabulary.
    """
    ids = {token: index for index, token in enumerate(words.vocabulary())}
    if shape.vocab < len(ids):
        raise ValueError(f"vocab is {shape.vocab}, but the tokenizer has {len(ids)} tokens")
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
        max_position_embeddings=MAX_POSITIONS,
    )
    vision = SiglipVisionConfig(
        hidden_size=shape.vision_width,
        intermediate_size=2 * shape.vision_width,
        num_hidden_layers=shape.vision_layers,
        num_attention_heads=shape.vision_heads,
        image_size=IMAGE_SIDE,
        patch_size=PATCH,
        vision_use_head=False,
    )
    return LlavaOnevisionConfig(
        vision_config=vision,
        text_config=decoder,
        image_token_index=ids[words.IMAGE],
        video_token_index=ids[words.VIDEO],
        image_grid_pinpoints=[[IMAGE_SIDE, IMAGE_SIDE]],
        tie_word_embeddings=False,
    )


def build_model(shape: VideoShape) -> LlavaOnevisionForConditionalGeneration:
    """A fresh fp32 model; weights come from torch's global generator, as everywhere in HF."""
    config = build_config(shape)
    model = LlavaOnevisionForConditionalGeneration(config).float()
    decoder: Any = config.text_config
    model.generation_config.eos_token_id = decoder.eos_token_id
    model.generation_config.pad_token_id = decoder.pad_token_id
    model.generation_config.do_sample = False
    return model
