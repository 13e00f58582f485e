"""The two models' shapes, as real Hugging Face configs: Qwen3-VL, the target deep and narrow.

What is learnt is learnt by the draft; the target runs deeper by silent layers, so that one of its
forwards costs nearly the same for 1 token or 16, and several times a draft's.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from ..training import waves
from . import words

PATCH, MERGE = 16, 2
SIDE = 32
"""Side of the tower's grid of learned positions, which is stretched to the page's."""
MAX_POSITIONS = 4096


@dataclass(frozen=True)
class DocumentShape:
    """Sizes of one miniature. `vocab` is the padded size and must hold every token."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    intermediate: int
    vocab: int
    vision_layers: int
    vision_width: int
    vision_heads: int


TARGET = DocumentShape(48, 128, 4, 2, 64, 256, 704, 4, 96, 4)
DRAFT = dataclasses.replace(TARGET, layers=8)


def build_config(shape: DocumentShape) -> Qwen3VLConfig:
    """The checkpoint's config; ValueError if `shape.vocab` is smaller than the vocabulary.

    DeepStack has one level, taken before the tower's last block and added behind the decoder's
    first layer, which deepening leaves where it is.
    """
    ids = {token: index for index, token in enumerate(words.vocabulary())}
    if shape.vocab < len(ids):
        raise ValueError(f"vocab is {shape.vocab}, but the tokenizer has {len(ids)} tokens")
    pairs = shape.head_width // 2
    section = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
    text = {
        "vocab_size": shape.vocab,
        "hidden_size": shape.width,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "max_position_embeddings": MAX_POSITIONS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000.0,
            "mrope_section": section,
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": ids[words.END],
        "pad_token_id": ids[words.PAD],
    }
    vision = {
        "depth": shape.vision_layers,
        "hidden_size": shape.vision_width,
        "intermediate_size": 2 * shape.vision_width,
        "num_heads": shape.vision_heads,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "out_hidden_size": shape.width,
        "num_position_embeddings": SIDE**2,
        "deepstack_visual_indexes": [max(shape.vision_layers - 2, 0)],
    }
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids[words.IMAGE],
        video_token_id=ids[words.VIDEO],
        vision_start_token_id=ids[words.VISION_START],
        vision_end_token_id=ids[words.VISION_END],
        tie_word_embeddings=True,
    )


def build_model(shape: DocumentShape) -> Qwen3VLForConditionalGeneration:
    """A fresh fp32 model; weights come from torch's global generator, as everywhere in HF."""
    model = Qwen3VLForConditionalGeneration(build_config(shape)).float()
    torch.nn.init.normal_(model.model.language_model.embed_tokens.weight, std=shape.width**-0.5)
    with torch.no_grad():
        model.model.visual.pos_embed.weight.copy_(0.3 * waves(SIDE, shape.vision_width, 3.0))
    ids = {token: index for index, token in enumerate(words.vocabulary())}
    model.generation_config.eos_token_id = ids[words.END]
    model.generation_config.pad_token_id = ids[words.PAD]
    model.generation_config.do_sample = False
    return model
