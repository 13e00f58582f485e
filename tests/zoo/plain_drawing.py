"""Types that also draw: pictures are codes of a vocabulary, or embeddings of a tower."""

from __future__ import annotations

from typing import Any

import torch
import transformers

from . import words
from .plain import PATCHES, SIDE, TEXT
from .plain_llava import PICTURES, from_config
from .species import Species

CODES, FIRST = 24, 100
"""Ids of codes of pictures, and where they begin."""
BOI, EOI, EOL, EOF, PICTURE = 158, 157, 140, 141, 142
"""The first is said in none of the texts: Chameleon would go on with a whole picture, where its own
forward never says a code."""


def letters(code: int) -> str:
    return "".join(chr(ord("A") + int(digit)) for digit in str(code))


def chameleon() -> Any:
    names = {"<s>": words.BOS, "<pad>": words.PAD, "</s>": words.EOS, "<image>": words.IMAGE}
    names |= {"<racm3:break>": BOI, "<eoss>": EOI}
    names |= {f"IMGIMG{letters(code)}Z": FIRST + code for code in range(CODES)}
    vq = {
        "embed_dim": 8, "num_embeddings": CODES, "latent_channels": 32, "resolution": 16,
        "base_channels": 32, "channel_multiplier": [1, 1, 1], "num_res_blocks": 1,
    }  # fmt: skip
    return from_config(transformers.ChameleonConfig(**TEXT, vq_config=vq, vocabulary_map=names))


def emu3() -> Any:
    names = {"<|extra_203|>": words.BOS, "<|extra_204|>": words.EOS, "<|image token|>": PICTURE}
    names |= {"<|image start|>": BOI, "<|image end|>": EOI, "<|extra_200|>": EOL}
    names |= {"<|extra_201|>": EOF, "<image>": words.IMAGE, "<|endoftext|>": words.PAD}
    names |= {f"<|visual token {code:06d}|>": FIRST + code for code in range(CODES)}
    vq = {
        "codebook_size": CODES, "embed_dim": 8, "latent_channels": 8, "base_channels": 32,
        "channel_multiplier": [1, 1], "num_res_blocks": 1, "attn_resolutions": [],
        "hidden_size": 32, "temporal_downsample_factor": 1,
    }  # fmt: skip
    text = {**TEXT, "attention_dropout": 0.0}
    return from_config(
        transformers.Emu3Config(text_config=text, vq_config=vq, vocabulary_map=names)
    )


def janus() -> Any:
    width = TEXT["hidden_size"]
    vision = transformers.models.janus.JanusVisionConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=SIDE,
        patch_size=7,
        num_image_tokens=PATCHES,
        projection_dim=width,
    )
    vq = transformers.models.janus.JanusVQVAEConfig(
        embed_dim=8,
        num_embeddings=CODES,
        latent_channels=32,
        base_channels=32,
        channel_multiplier=[1, 1, 1],
        num_res_blocks=1,
        projection_dim=width,
        image_token_embed_dim=width,
    )
    config = transformers.JanusConfig(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=vision,
        vq_config=vq,
        image_token_id=words.IMAGE,
        tie_word_embeddings=False,
    )
    return from_config(config)


def coded(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is 4 x 4 codes."""
    span = [BOI, *[words.IMAGE] * 16, EOI]
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, 16, 16, seed=seed)
    return inputs


def measured(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is its size in words, and 4 lines of 4 codes, each with its end."""
    span = [BOI, 7, 9, 7, PICTURE, *[words.IMAGE] * 4 * 5, EOF, EOI]
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, 8, 8, seed=seed)
        inputs["image_sizes"] = torch.tensor([[8, 8]] * len(items))
    return inputs


def embedded(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    span = [BOI, *[words.IMAGE] * PATCHES, EOI]
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, SIDE, SIDE, seed=seed)
    return inputs


SPECIES = (
    Species("chameleon", chameleon, coded, kinds=PICTURES),
    Species("emu3", emu3, measured, kinds=PICTURES),
    Species("janus", janus, embedded, kinds=PICTURES),
)
