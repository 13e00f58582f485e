"""Types whose layers look at what a prompt shows by cross-attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import words
from .species import Species
from .tiny import TEXT, VISION, tiny

SIDE = VISION["image_size"]


def opened(build: Callable[[], Any]) -> Callable[[], Any]:
    """The gates of cross-attention begin closed, so that pictures would change nothing."""

    def built() -> Any:
        model = build()
        for name, weights in model.named_parameters():
            if "gate" in name and weights.ndim <= 1:
                weights.data.fill_(0.7)
        return model

    return built


def views(kind: str, rows: int) -> torch.Tensor:
    """Which of the most pictures of a row are there, `[rows, pictures]`."""
    maximum = len(words.KINDS[kind])
    return torch.tensor(
        [[place < len(words.visible(kind, row)) for place in range(maximum)] for row in range(rows)]
    ).long()


def mllama_inputs(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """Pictures of one tile; tokens see the pictures in front of them."""
    inputs, items = words.prompts(kind, rows, seed, lambda item: [words.IMAGE])
    if items:
        there = views(kind, rows)  # [rows, pictures]
        spots = (inputs["input_ids"] == words.IMAGE).long().cumsum(1)  # [rows, width]
        places = torch.arange(1, there.shape[1] + 1)
        pixels = words.pixels(*there.shape, 1, 3, SIDE, SIDE, seed=seed)
        inputs |= {
            "pixel_values": pixels * there[..., None, None, None, None],
            "aspect_ratio_ids": there,
            "aspect_ratio_mask": torch.ones_like(there)[..., None],
            "cross_attention_mask": (spots[..., None] >= places).long()[..., None],
        }
    return inputs


def evolla_inputs(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """What stands for a picture is a protein."""
    inputs = words.texts(model, kind, rows, seed)
    if kind != "text":
        draws = words.generator(seed)
        inputs["protein_input_ids"] = torch.randint(5, 20, (rows, 6), generator=draws)
        inputs["protein_attention_mask"] = torch.ones(rows, 6, dtype=torch.long)
    return inputs


EVOLLA: dict[str, Any] = {
    **TEXT, "use_cache": True, "aligner_num_add_layers": 1, "resampler_depth": 1,
    "resampler_dim_head": 8, "resampler_heads": 4, "resampler_num_latents": 4,
    "protein_encoder_config": {
        "vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48, "max_position_embeddings": 64,
    },
}  # fmt: skip
"""As published it decodes without a cache, which nothing here can do."""

SPECIES = (
    Species(
        "evolla",
        opened(tiny("evolla", **EVOLLA)),
        evolla_inputs,
        ("text",),
        unseen="takes protein_attention_mask, protein_input_ids",
    ),
    Species(
        "mllama",
        opened(
            tiny(
                "mllama",
                text_config={**TEXT, "num_hidden_layers": 4, "cross_attention_layers": [1, 3]},
                vision_config={
                    **VISION, "num_global_layers": 1, "attention_heads": 2, "max_num_tiles": 1,
                    "supported_aspect_ratios": [[1, 1]], "intermediate_layers_indices": [0],
                    "vision_output_dim": 64,
                },
                image_token_index=words.IMAGE,
            )
        ),
        mllama_inputs,
        ("text", "image", "images"),
    ),
    Species(
        "idefics",
        tiny(
            "idefics",
            vision_config={**VISION, "embed_dim": 32},
            perceiver_config={"resampler_n_latents": 4},
            alpha_initializer="ones",
            additional_vocab_size=0,
            cross_layer_interval=2,
            **{**TEXT, "num_hidden_layers": 4},
        ),
        words.texts,
        ("image", "images"),
        refused="fails its self-check",
    ),
)  # fmt: skip
