"""Readers of documents, and types that also draw: pictures are codes, or embeddings of a tower."""

from __future__ import annotations

from typing import Any

import torch

from . import words
from .mrope import rope
from .plain import IDS, INDEX, LLAMA, PATCHES, PICTURES, PIXTRAL, QWEN2, SIDE, SQUARE, TEXT, VISION
from .species import Species
from .tiny import tiny

PAGE = 128
"""Pixels of a side of what SAM reads: its 8 x 8 patches become 2 x 2."""
SAM = {
    "hidden_size": 16, "output_channels": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": PAGE, "patch_size": 16, "window_size": 4, "global_attn_indexes": [1],
    "mlp_dim": 32,
}  # fmt: skip
EXPERTS = {
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24, "mlp_layer_types": ["dense", "sparse", "sparse"],
}  # fmt: skip
QUERIES = 144
"""Queries of DeepSeek-OCR 2, whatever the picture."""


QWEN3 = {**TEXT, "model_type": "qwen3", "head_dim": 8}
got_ocr2 = tiny("got_ocr2", text_config=QWEN2, vision_config=SAM, image_seq_length=4, **INDEX)
pp_chart2table = tiny(
    "pp_chart2table", text_config=QWEN2, vision_config=SAM, image_seq_length=4, **INDEX
)
lighton_ocr = tiny("lighton_ocr", text_config=QWEN3, vision_config=PIXTRAL, **IDS)
qianfan_ocr = tiny(
    "qianfan_ocr", text_config=QWEN3, vision_config=SQUARE, image_seq_length=4, **IDS
)


def sam_tower(**encoder: Any) -> dict[str, Any]:
    """A tower whose encoder reads what SAM saw."""
    return {"sam_config": {**SAM, "downsample_channels": [8, 16]}, "encoder_config": encoder}


deepseek_ocr2 = tiny(
    "deepseek_ocr2",
    text_config={**TEXT, **EXPERTS},
    vision_config=sam_tower(
        vocab_size=8, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2,
    ),
    **IDS,
)  # fmt: skip
unlimited_ocr = tiny(
    "unlimited_ocr",
    text_config={**TEXT, **EXPERTS, "sliding_window": 8},
    vision_config=sam_tower(**{**VISION, "hidden_size": 16, "image_size": 32, "patch_size": 16}),
    **IDS,
)
granite_docling = tiny(
    "granite_docling",
    text_config={**TEXT, "attention_multiplier": 0.35, "residual_multiplier": 1.0},
    vision_config={
        **VISION, "out_hidden_size": TEXT["hidden_size"], "scale_factor": 2,
        "deepstack_visual_indexes": [0, 1],
    },
    **IDS,
)  # fmt: skip
minicpm_ocr = tiny(
    "minicpm_ocr",
    text_config={
        **TEXT, "model_type": "qwen3_5_text", "head_dim": 8,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_conv_kernel_dim": 3,
        "rope_parameters": rope(2, 1, 1, partial_rotary_factor=1.0),
    },
    vision_config=VISION,
    insert_layer_id=0,
    video_token_id=words.VIDEO,
    **IDS,
)  # fmt: skip

pages = words.picture_inputs(words.framed(words.IMAGE, 4), 3, PAGE, PAGE)
"""A picture is one page of four tokens, between two marks."""
merged = words.picture_inputs([words.IMAGE] * 6, 3, 28, 42, image_sizes=[28, 42])
"""A picture is 28 x 42: 4 x 6 patches, merged two by two."""
three_tiles = words.picture_inputs(words.framed(words.IMAGE, 12), 3, SIDE, SIDE, each=3)
"""A picture is three tiles of four tokens."""


def queried(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is its crops, the whole and a mark; of several each is the whole alone."""
    crops = 1 if kind == "image" else 0
    span = [words.IMAGE] * (QUERIES * (crops + 1) + 1)
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, PAGE, PAGE, seed=seed)
    if crops:
        inputs["pixel_values_local"] = words.pixels(len(items), 3, PAGE, PAGE, seed=seed + 1)
        inputs["num_local_patches"] = torch.tensor([1] * len(items))
    return inputs


def lined(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is a crop and the whole, two lines of two tokens with an end each, and a mark; of
    several each is the whole alone."""
    crops = 1 if kind == "image" else 0
    span = [words.IMAGE] * (6 * (crops + 1) + 1)
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if items:
        inputs["pixel_values"] = words.pixels(len(items), 3, PAGE, PAGE, seed=seed)
    if crops:
        inputs["pixel_values_local"] = words.pixels(len(items), 3, PAGE, PAGE, seed=seed + 1)
        inputs["num_local_patches"] = [1] * len(items)
        inputs["patches_grid"] = [[1, 1]] * len(items)
    return inputs


def tile_rows(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is one line of two tiles, and a small one of the whole; rows are filled up."""
    tile = [words.IMAGE] * 4
    mark = words.SEPARATOR
    span = [mark, 10, *tile, mark, 11, *tile, words.ROW, mark, words.THUMBNAIL, *tile, mark]
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if not items:
        return inputs
    counts = [3 * len(words.visible(kind, row)) for row in range(rows)]
    pixels = words.pixels(rows, max(counts), 3, SIDE, SIDE, seed=seed)
    mask = torch.arange(max(counts))[None] < torch.tensor(counts)[:, None]
    pixels[~mask] = 0
    return {**inputs, "pixel_values": pixels, "pixel_attention_mask": mask}


def packed(model: Any, kind: str, rows: int, seed: int) -> dict[str, Any]:
    """A picture is 4 x 4 patches in one line with those of all others, merged two by two."""
    span = words.framed(words.IMAGE, 4)
    inputs, items = words.prompts(kind, rows, seed, lambda item: span)
    if items:
        inputs["pixel_values"] = words.pixels(1, 3, 7, 7 * 16 * len(items), seed=seed)
        inputs["target_sizes"] = torch.tensor([[4, 4]] * len(items), dtype=torch.int32)
    return inputs


CODES, FIRST = 24, 100
"""Ids of codes of pictures, and where they begin."""
BOI, EOI, EOL, EOF, PICTURE = 158, 157, 140, 141, 142
"""The first is said in none of the texts: Chameleon would go on with a whole picture, where its own
forward never says a code."""


def letters(code: int) -> str:
    return "".join(chr(ord("A") + int(digit)) for digit in str(code))


SHARED = {"embed_dim": 8, "base_channels": 32, "num_res_blocks": 1}
CHAMELEON = {
    "<s>": words.BOS, "<pad>": words.PAD, "</s>": words.EOS, "<image>": words.IMAGE,
    "<racm3:break>": BOI, "<eoss>": EOI,
    **{f"IMGIMG{letters(code)}Z": FIRST + code for code in range(CODES)},
}  # fmt: skip
chameleon = tiny(
    "chameleon",
    vq_config={
        **SHARED, "num_embeddings": CODES, "latent_channels": 32, "resolution": 16,
        "channel_multiplier": [1, 1, 1],
    },
    vocabulary_map=CHAMELEON,
    **TEXT,
)  # fmt: skip
EMU3 = {
    "<|extra_203|>": words.BOS, "<|extra_204|>": words.EOS, "<|image token|>": PICTURE,
    "<|image start|>": BOI, "<|image end|>": EOI, "<|extra_200|>": EOL, "<|extra_201|>": EOF,
    "<image>": words.IMAGE, "<|endoftext|>": words.PAD,
    **{f"<|visual token {code:06d}|>": FIRST + code for code in range(CODES)},
}  # fmt: skip
emu3 = tiny(
    "emu3",
    text_config={**TEXT, "attention_dropout": 0.0},
    vq_config={
        **SHARED, "codebook_size": CODES, "latent_channels": 8, "channel_multiplier": [1, 1],
        "attn_resolutions": [], "hidden_size": 32, "temporal_downsample_factor": 1,
    },
    vocabulary_map=EMU3,
)  # fmt: skip
WIDTH = TEXT["hidden_size"]
janus = tiny(
    "janus",
    text_config=LLAMA,
    vision_config={
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SIDE,
        "patch_size": 7, "num_image_tokens": PATCHES, "projection_dim": WIDTH,
    },
    vq_config={
        **SHARED, "num_embeddings": CODES, "latent_channels": 32, "channel_multiplier": [1, 1, 1],
        "projection_dim": WIDTH, "image_token_embed_dim": WIDTH,
    },
    **IDS,
)  # fmt: skip

coded = words.picture_inputs([BOI, *[words.IMAGE] * 16, EOI], 3, 16, 16)
"""A picture is 4 x 4 codes."""
measured = words.picture_inputs(
    [BOI, 7, 9, 7, PICTURE, *[words.IMAGE] * 4 * 5, EOF, EOI], 3, 8, 8, image_sizes=[8, 8]
)
"""A picture is its size in words, and 4 lines of 4 codes, each with its end."""
embedded = words.picture_inputs([BOI, *[words.IMAGE] * PATCHES, EOI], 3, SIDE, SIDE)

SPECIES = (
    Species("got_ocr2", got_ocr2, pages, kinds=PICTURES),
    Species("pp_chart2table", pp_chart2table, pages, kinds=PICTURES),
    Species("lighton_ocr", lighton_ocr, merged, kinds=PICTURES),
    Species("qianfan_ocr", qianfan_ocr, three_tiles, kinds=PICTURES),
    Species("deepseek_ocr2", deepseek_ocr2, queried, kinds=PICTURES, spread=0.3),
    # Its cache drops tokens from behind the prompt; then its mask looks for padding too far.
    Species("unlimited_ocr", unlimited_ocr, lined, kinds=PICTURES, alone=True),
    Species("granite_docling", granite_docling, tile_rows, kinds=PICTURES, spread=0.2),
    Species(
        "minicpm_ocr", minicpm_ocr, packed, kinds=PICTURES,
        trees=False,
    ),
    Species("chameleon", chameleon, coded, kinds=PICTURES),
    Species("emu3", emu3, measured, kinds=PICTURES),
    Species("janus", janus, embedded, kinds=PICTURES),
)  # fmt: skip
