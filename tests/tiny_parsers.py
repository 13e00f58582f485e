"""Tiny random document parsers, and processed inputs for those that are in the method matrix.

They read pictures only, so a prompt of any kind shows as many of them as it has contents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from zoo.tiny import tiny as tiny_type

IMAGE, VISION_START, VISION_END = 90, 92, 93
"""As in `tiny`."""

Pixels = dict[str, torch.Tensor]
TYPED = ("paddleocr_vl", "hunyuan_vl")
"""Their processors tell which tokens are pictures."""

IDS = {"image_token_id": IMAGE, "tie_word_embeddings": False}
UNTIED = {"head_dim": 12, "tie_word_embeddings": False}
"""Tied embeddings would make random text say one word again and again."""


def _rope(*section: int, **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [*section], **more}


TOWER = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 7,
}  # fmt: skip


def _paddleocr_vl(text: dict) -> Any:
    return tiny_type(
        "paddleocr_vl", text_config={**text, **UNTIED, "rope_parameters": _rope(1, 2, 3)},
        vision_config=TOWER, vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
        **IDS,
    )()  # fmt: skip


def _hunyuan_vl(text: dict) -> Any:
    """RoPE as published: the fixed `alpha` of a type called dynamic, and four axes."""
    rope = _rope(2, 2, 1, 1, rope_type="dynamic", factor=1.0, alpha=1000.0)
    vision = {
        "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 2, "patch_size": 7, "max_image_size": 28, "out_hidden_size": 48,
    }  # fmt: skip
    return tiny_type(
        "hunyuan_vl", text_config={**text, **UNTIED, "rope_parameters": rope},
        vision_config=vision, im_start_id=VISION_START, im_end_id=VISION_END, **IDS,
    )()  # fmt: skip


def _glm_ocr(text: dict) -> Any:
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "image_size": 28,
        "patch_size": 7, "out_hidden_size": 48,
    }  # fmt: skip
    return tiny_type(
        "glm_ocr", text_config={**text, **UNTIED, "rope_parameters": _rope(1, 2, 3)},
        vision_config=vision, video_token_id=91, image_start_token_id=VISION_START,
        image_end_token_id=VISION_END, **IDS,
    )()  # fmt: skip


def _got_ocr2(text: dict) -> Any:
    vision = {
        "hidden_size": 16, "output_channels": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
        "image_size": 128, "patch_size": 16, "window_size": 4, "global_attn_indexes": [1],
        "mlp_dim": 32,
    }  # fmt: skip
    return tiny_type(
        "got_ocr2", text_config={**text, "model_type": "qwen2"}, vision_config=vision,
        image_token_index=IMAGE, image_seq_length=4, tie_word_embeddings=False,
    )()  # fmt: skip


def _lighton_ocr(text: dict) -> Any:
    return tiny_type(
        "lighton_ocr", text_config={**text, "model_type": "qwen3", "head_dim": 12},
        vision_config={**TOWER, "model_type": "pixtral", "image_size": 56}, **IDS,
    )()  # fmt: skip


def _qianfan_ocr(text: dict) -> Any:
    return tiny_type(
        "qianfan_ocr", text_config={**text, "model_type": "qwen3", "head_dim": 12},
        vision_config={**TOWER, "image_size": [28, 28], "patch_size": [7, 7]},
        image_seq_length=4, **IDS,
    )()  # fmt: skip


def _deepseek_ocr2(text: dict) -> Any:
    """Its decoder alone is looked at: its tower knows two sizes of pictures, both large."""
    sam = {
        "hidden_size": 16, "output_channels": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": 128, "downsample_channels": [8, 16], "mlp_dim": 16,
    }  # fmt: skip
    encoder = {
        "vocab_size": 8, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2,
    }  # fmt: skip
    experts = {
        "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "mlp_layer_types": ["dense", "sparse", "sparse"],
    }  # fmt: skip
    return tiny_type(
        "deepseek_ocr2", text_config={**text, "head_dim": 12, **experts},
        vision_config={"sam_config": sam, "encoder_config": encoder}, **IDS,
    )()  # fmt: skip


BUILDERS: dict[str, Callable[[dict], Any]] = {
    "paddleocr_vl": _paddleocr_vl,
    "hunyuan_vl": _hunyuan_vl,
    "glm_ocr": _glm_ocr,
    "got_ocr2": _got_ocr2,
    "lighton_ocr": _lighton_ocr,
    "qianfan_ocr": _qianfan_ocr,
    "deepseek_ocr2": _deepseek_ocr2,
}
SPANS = {
    "paddleocr_vl": 6,  # 4 x 6 patches, merged two by two
    "hunyuan_vl": 10,  # the same, and an end to each line and the picture, and a beginning
}
"""Placeholder tokens of a picture."""


def pixels(
    family: str, contents: list[list[str]], generator: torch.Generator
) -> tuple[list[list[int]], Pixels]:
    """Placeholder ids of each prompt, and the pixels of all."""
    span = [VISION_START, *[IMAGE] * SPANS[family], VISION_END]
    if family == "hunyuan_vl":
        span = span[1:-1]
    # A word between two pictures, so that they are told apart.
    spans = [[token for _ in items for token in (*span, 5)] for items in contents]
    count = sum(len(items) for items in contents)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    grid = {"image_grid_thw": torch.tensor([[1, 4, 6]] * count)}
    made: dict[str, Callable[[], Pixels]] = {
        "paddleocr_vl": lambda: {"pixel_values": draw(count * 24, 3, 7, 7), **grid},
        "hunyuan_vl": lambda: {"pixel_values": draw(count * 24, 3 * 7 * 7), **grid},
    }
    return spans, made[family]()
