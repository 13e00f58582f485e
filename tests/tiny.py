"""Tiny random models of every supported family, and processed inputs for them.

Weights are random, so their argmax is nearly a tie-free coin throw: a wrong position, mask or slot
changes the output at once, which is what a parity test wants.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SiglipVisionConfig,
)

VOCAB, IMAGE, VIDEO, VISION_START, VISION_END, EOS, PAD = 96, 90, 91, 92, 93, 95, 94
TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": PAD,
    "bos_token_id": None,
    "eos_token_id": EOS,
}
FAMILIES = ("llama", "qwen2", "llava_onevision", "qwen2_5_vl", "qwen3_vl")


@functools.cache
def model(family: str, seed: int = 0, layers: int = 3, vocab: int = VOCAB) -> Any:
    """A random model of a family, fp32, eval mode; cached, so never change its weights."""
    torch.manual_seed(seed)
    text = {**TEXT, "num_hidden_layers": layers, "vocab_size": vocab}
    built = BUILDERS[family](text).eval()
    for name, weights in built.named_parameters():
        if weights.ndim > 1:  # larger than the default init, so that attention really selects
            weights.data.normal_(0, 0.25 if "embed" in name else 0.12)
    built.generation_config.eos_token_id = EOS
    built.generation_config.pad_token_id = PAD
    return built


def _llama(text: dict) -> Any:
    return LlamaForCausalLM(LlamaConfig(**text))


def _qwen2(text: dict) -> Any:
    return Qwen2ForCausalLM(Qwen2Config(**text))


def _llava(text: dict) -> Any:
    vision = SiglipVisionConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        image_size=28, patch_size=7,
    )  # fmt: skip
    config = LlavaOnevisionConfig(
        vision_config=vision,
        text_config=Qwen2Config(**text),
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        image_grid_pinpoints=[[28, 28], [28, 56]],
        vision_feature_layer=-1,
        tie_word_embeddings=False,
    )
    return LlavaOnevisionForConditionalGeneration(config)


def _qwen2_5_vl(text: dict) -> Any:
    vision = {
        "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
        "patch_size": 7, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "out_hidden_size": 48, "fullatt_block_indexes": [1], "window_size": 28,
    }  # fmt: skip
    rope = {"type": "default", "mrope_section": [1, 2, 3], "rope_theta": 10000.0}
    config = Qwen2_5_VLConfig(
        text_config={**text, "rope_parameters": {**rope, "rope_type": "default"}},
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        tie_word_embeddings=False,
    )
    return Qwen2_5_VLForConditionalGeneration(config)


def _qwen3_vl(text: dict) -> Any:
    vision = {
        "depth": 3, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
        "patch_size": 7, "spatial_merge_size": 2, "temporal_patch_size": 2,
        "out_hidden_size": 48, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1],
    }  # fmt: skip
    rope = {"rope_type": "default", "mrope_section": [2, 2, 2], "mrope_interleaved": True,
            "rope_theta": 10000.0}  # fmt: skip
    config = Qwen3VLConfig(
        text_config={**text, "head_dim": 12, "rope_parameters": rope},
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        tie_word_embeddings=False,
    )
    return Qwen3VLForConditionalGeneration(config)


BUILDERS = {
    "llama": _llama,
    "qwen2": _qwen2,
    "llava_onevision": _llava,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
}


def inputs(family: str, kind: str = "text", rows: int = 1, seed: int = 0) -> dict[str, Any]:
    """Processed inputs of `rows` prompts of different length, padded on the left.

    `kind` is `text`, `image`, `images` (two in each prompt) or `video`.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    visual, pixels = _pixels(family, kind, rows, generator)
    prompts = []
    for row in range(rows):
        words = torch.randint(0, 80, (7 + 3 * row,), generator=generator).tolist()
        prompts.append(words[:3] + visual + words[3:])
    width = max(len(prompt) for prompt in prompts)
    ids = [[PAD] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    batch = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), **pixels}
    if pixels and family != "llava_onevision":
        kinds = torch.zeros_like(batch["input_ids"])
        kinds[batch["input_ids"] == IMAGE] = 1
        kinds[batch["input_ids"] == VIDEO] = 2
        batch["mm_token_type_ids"] = kinds
    return batch


def _pixels(
    family: str, kind: str, rows: int, generator: torch.Generator
) -> tuple[list[int], dict[str, torch.Tensor]]:
    """Placeholder ids of one prompt, and the pixels of all."""
    if kind == "text" or family in ("llama", "qwen2"):
        return [], {}
    if family == "llava_onevision":
        return _llava_pixels(kind, rows, generator)
    return _qwen_pixels(family, kind, rows, generator)


def _llava_pixels(kind: str, rows: int, generator: torch.Generator) -> tuple[list[int], dict]:
    if kind == "video":
        frames = torch.randn(rows, 4, 3, 28, 28, generator=generator)
        return [VIDEO] * (4 * 4 + 1), {"pixel_values_videos": frames}
    if kind == "image":  # a base view and two tiles: 16 + 4 rows of (8 + newline), unpadded
        tiles = torch.randn(rows, 3, 3, 28, 28, generator=generator)
        pixels = {"pixel_values": tiles, "image_sizes": torch.tensor([[28, 56]] * rows)}
        return [IMAGE] * (16 + 4 * 9), pixels
    views = torch.randn(2 * rows, 1, 3, 28, 28, generator=generator)
    pixels = {
        "pixel_values": views,
        "image_sizes": torch.tensor([[28, 28]] * (2 * rows)),
        "batch_num_images": torch.tensor([2] * rows),
    }
    return ([IMAGE] * 17 + [3]) * 2, pixels


def _qwen_pixels(
    family: str, kind: str, rows: int, generator: torch.Generator
) -> tuple[list[int], dict[str, torch.Tensor]]:
    patch = 3 * 2 * 7 * 7
    if kind == "video":
        grid = torch.tensor([[2, 4, 4]] * rows)
        patches = torch.randn(rows * 32, patch, generator=generator)
        pixels = {"pixel_values_videos": patches, "video_grid_thw": grid}
        if family == "qwen2_5_vl":
            pixels["second_per_grid_ts"] = torch.tensor([1.0] * rows)
            return [VISION_START, *[VIDEO] * 8, VISION_END], pixels
        return [5, VISION_START, *[VIDEO] * 4, VISION_END,
                6, VISION_START, *[VIDEO] * 4, VISION_END], pixels  # fmt: skip
    count = 2 if kind == "images" else 1
    grid = torch.tensor([[1, 4, 6]] * (count * rows))
    patches = torch.randn(count * rows * 24, patch, generator=generator)
    span = [VISION_START, *[IMAGE] * 6, VISION_END]
    return span * count, {"pixel_values": patches, "image_grid_thw": grid}
