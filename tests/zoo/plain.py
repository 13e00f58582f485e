"""Types whose decoders are plain: full attention, one axis of positions."""

from __future__ import annotations

from typing import Any

import transformers

from . import words
from .species import Species

TEXT: dict[str, Any] = {
    "vocab_size": words.VOCAB, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "pad_token_id": words.PAD, "bos_token_id": words.BOS, "eos_token_id": words.EOS,
    "tie_word_embeddings": False,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 7,
}  # fmt: skip
SIDE = VISION["image_size"]
PATCHES = (SIDE // VISION["patch_size"]) ** 2


def llava() -> Any:
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**VISION),
        text_config=transformers.LlamaConfig(**TEXT),
        image_token_index=words.IMAGE,
        image_token_id=words.IMAGE,
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    return transformers.AutoModelForImageTextToText.from_config(config)


def single_view(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is one view of `PATCHES` tokens."""
    inputs, items = words.prompts(kind, rows, seed, lambda item: [words.IMAGE] * PATCHES)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, SIDE, SIDE, seed=seed)
    return inputs


SPECIES = (Species("llava", llava, single_view, kinds=("text", "image", "images")),)
