"""Tiny random models of every supported family, and processed inputs for them.

Weights are random, so their argmax is nearly a tie-free coin throw: a wrong position, mask or slot
changes the output at once, which is what a parity test wants.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import tiny_parsers
from sooner import DFlashModel, EagleHead
from sooner.methods.dflash.model import DFlashConfig
from sooner.methods.eagle.eagle3 import Eagle3Config, Eagle3Head
from sooner.models import adapt
from sooner.models.openvla.config import OpenVLAConfig
from sooner.models.openvla.model import OpenVLAForActionPrediction
from zoo.tiny import tiny as tiny_type

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
TEXT_FAMILIES = ("llama", "qwen2")
FAMILIES = (
    *TEXT_FAMILIES, "llava_onevision", "qwen2_5_vl", "qwen3_vl", "openvla", "paddleocr_vl",
    "hunyuan_vl",
)  # fmt: skip
PARSERS = tuple(tiny_parsers.BUILDERS)
"""Document parsers."""

VISUAL_KINDS = {
    "image": ["image"],
    "images": ["image", "image"],
    "video": ["video"],
    "mixed": ["image", "video"],
}
UNEVEN = ([], ["video"], ["image", "image"], ["image"], ["video", "image"])
KINDS = ("text", *VISUAL_KINDS, "uneven")

NOISE = {
    "llama": 0.1,
    "qwen2": 0.1,
    "llava_onevision": 0.06,
    "qwen2_5_vl": 0.07,
    "qwen3_vl": 0.08,
    "openvla": 0.07,
    "paddleocr_vl": 0.07,
    "hunyuan_vl": 0.07,
}


@functools.cache
@torch.inference_mode(False)
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


@functools.cache
@torch.inference_mode(False)
def noisy(family: str, noise: float | None = None, seed: int = 0) -> Any:
    """A copy of `model(family)` with noise on its weights, which agrees with it half the time.

    `noise` is relative to the spread of each weight; the default gives chains of four a mean
    acceptance length between two and three.
    """
    copy_of = copy.deepcopy(model(family, seed))
    generator = torch.Generator().manual_seed(7)
    scale = NOISE.get(family, 0.07) if noise is None else noise
    for weights in copy_of.parameters():
        if weights.ndim > 1:
            shake = torch.randn(weights.shape, generator=generator)
            weights.data += scale * weights.data.std() * shake
    return copy_of


@functools.cache
@torch.inference_mode(False)
def repadded(family: str, vocab: int) -> Any:
    """A draft like `noisy(family)` whose embedding and head have `vocab` rows instead."""
    draft = model(family, seed=11, vocab=vocab)
    weights = noisy(family).state_dict()
    for name, parameter in draft.named_parameters():
        rows = min(parameter.shape[0], weights[name].shape[0])
        parameter.data[:rows] = weights[name][:rows]
    return draft


@functools.cache
@torch.inference_mode(False)
def head(family: str, seed: int = 0) -> EagleHead:
    """An untrained draft head for `model(family)`."""
    torch.manual_seed(seed)
    return EagleHead.for_target(model(family))


@functools.cache
@torch.inference_mode(False)
def eagle3_head(family: str, drafted: int = 64) -> Eagle3Head:
    """An untrained head for `model(family)` that drafts every token below `drafted`."""
    torch.manual_seed(2)
    adapter = adapt(model(family))
    layers = (1, adapter.layers // 2, adapter.layers)
    head = Eagle3Head(Eagle3Config.like(adapter, layer_ids=layers, draft_vocab_size=drafted)).eval()
    head.token_ids.copy_(torch.arange(drafted))
    for weights in head.parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.2)
    return head


CHAINS: dict[str, dict[str, Any]] = {
    "": {},
    "domino": {"gru_hidden_dim": 8, "emb_dim": 8, "prefix": 1},
}
"""Sizes of chain heads."""


@functools.cache
@torch.inference_mode(False)
def block_drafter(
    family: str, block_size: int = 6, layers: int = 2, chain: str = ""
) -> DFlashModel:
    """A DFlash drafter for `model(family)` that is right now and then: its denoising is random, but
    the state that it adds to leans towards what the target's LM head says of the last state."""
    torch.manual_seed(1)
    target = model(family).config.get_text_config(decoder=True)
    config = DFlashConfig(
        hidden_size=target.hidden_size, intermediate_size=40, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=12, block_size=block_size,
        mask_token_id=VOCAB - 1, layers=(1, 2), vocab_size=VOCAB, chain=CHAINS[chain],
    )  # fmt: skip
    drafter = DFlashModel(config).eval()
    for weights in drafter.parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.2)
    return drafter


@functools.cache
@torch.inference_mode(False)
def eager(family: str) -> Any:
    """Returns the model with eager attention."""
    copy_of = copy.deepcopy(model(family))
    copy_of.set_attn_implementation("eager")
    return copy_of


def kinds(family: str) -> tuple[str, ...]:
    """The kinds of prompt that a family takes."""
    if family == "openvla":  # knows pictures alone
        return ("text", "image", "uneven")
    if family in PARSERS:
        return ("text", "image", "images", "uneven")
    return ("text",) if family in TEXT_FAMILIES else KINDS


def _llama(text: dict) -> Any:
    return LlamaForCausalLM(LlamaConfig(**text))


def _qwen2(text: dict) -> Any:
    return Qwen2ForCausalLM(Qwen2Config(**text))


IDS = {"image_token_id": IMAGE, "video_token_id": VIDEO, "tie_word_embeddings": False}
MARKS = {"vision_start_token_id": VISION_START, "vision_end_token_id": VISION_END}
QWEN_VISION: dict[str, Any] = {
    "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 7,
    "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 48,
}  # fmt: skip


def _llava(text: dict) -> Any:
    vision = {**tiny_parsers.TOWER, "model_type": "siglip_vision_model"}
    return tiny_type(
        "llava_onevision", vision_config=vision, text_config={**text, "model_type": "qwen2"},
        image_grid_pinpoints=[[28, 28], [28, 56]], vision_feature_layer=-1, **IDS,
    )()  # fmt: skip


def _qwen2_5_vl(text: dict) -> Any:
    rope = {"type": "default", "mrope_section": [1, 2, 3], "rope_theta": 10000.0}
    return tiny_type(
        "qwen2_5_vl", text_config={**text, "rope_parameters": {**rope, "rope_type": "default"}},
        vision_config={**QWEN_VISION, "fullatt_block_indexes": [1], "window_size": 28},
        **IDS, **MARKS,
    )()  # fmt: skip


def _qwen3_vl(text: dict) -> Any:
    rope = {"rope_type": "default", "mrope_section": [2, 2, 2], "mrope_interleaved": True,
            "rope_theta": 10000.0}  # fmt: skip
    vision = {
        **QWEN_VISION, "depth": 3, "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0, 1],
    }  # fmt: skip
    return tiny_type(
        "qwen3_vl", text_config={**text, "head_dim": 12, "rope_parameters": rope},
        vision_config=vision, **IDS, **MARKS,
    )()  # fmt: skip


def _openvla(text: dict) -> Any:
    tower = {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 7}
    rope = {"rope_type": "default", "rope_theta": 5000.0}
    config = OpenVLAConfig(
        dino_config={**tower, "hidden_size": 24, "mlp_ratio": 2},
        siglip_config={**tower, "hidden_size": 32, "intermediate_size": 48},
        text_config=LlamaConfig(**text, rope_parameters=rope),
        image_token_id=IMAGE,
        n_action_bins=32,
        pad_to_multiple_of=8,
    )
    return OpenVLAForActionPrediction(config)


BUILDERS = {
    "llama": _llama,
    "qwen2": _qwen2,
    "llava_onevision": _llava,
    "qwen2_5_vl": _qwen2_5_vl,
    "qwen3_vl": _qwen3_vl,
    "openvla": _openvla,
    **tiny_parsers.BUILDERS,
}


def inputs(family: str, kind: str = "text", rows: int = 1, seed: int = 0) -> dict[str, Any]:
    """Processed inputs of `rows` prompts of different length, padded on the left.

    `kind` is `text`, one of `VISUAL_KINDS`, or `uneven`: a batch whose prompts hold different
    numbers of images and videos, the first none at all.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    contents = [_contents(kind, row) for row in range(rows)]
    spans, pixels = _pixels(family, contents, generator)
    prompts = []
    for row in range(rows):
        words = torch.randint(0, 80, (7 + 3 * row,), generator=generator).tolist()
        prompts.append(words[:3] + spans[row] + words[3:])
    width = max(len(prompt) for prompt in prompts)
    ids = [[PAD] * (width - len(prompt)) + prompt for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    batch = {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask), **pixels}
    if pixels and family.startswith(("qwen2", "qwen3", *tiny_parsers.TYPED)):
        types = torch.zeros_like(batch["input_ids"])
        types[batch["input_ids"] == IMAGE] = 1
        types[batch["input_ids"] == VIDEO] = 2
        batch["mm_token_type_ids"] = types
    return batch


def _contents(kind: str, row: int) -> list[str]:
    """What the prompt of a row shows, in order."""
    return list(UNEVEN[row % len(UNEVEN)]) if kind == "uneven" else VISUAL_KINDS.get(kind, [])


def _pixels(
    family: str, contents: list[list[str]], generator: torch.Generator
) -> tuple[list[list[int]], dict[str, torch.Tensor]]:
    """Placeholder ids of each prompt, and the pixels of all."""
    if family in TEXT_FAMILIES or not any(contents):
        return [[] for _ in contents], {}
    build = PIXELS.get(family, _qwen_pixels)
    return build(family, contents, generator)


def _llava_pixels(
    family: str, contents: list[list[str]], generator: torch.Generator
) -> tuple[list[list[int]], dict[str, torch.Tensor]]:
    """A lone image is a base view and two tiles; several images in a prompt are one view each."""
    spans: list[list[int]] = []
    sizes, counts = [], []
    for items in contents:
        images = items.count("image")
        counts.append(images)
        sizes += [[28, 56] if images == 1 else [28, 28]] * images
        # 16 + 4 lines of (8 + newline), or 16 + newline
        image = [IMAGE] * (16 + 4 * 9 if images == 1 else 17)
        frames = [VIDEO] * (4 * 4 + 1)
        parts = [[*(image if item == "image" else frames), 3] for item in items]
        spans.append([token for part in parts for token in part])
    videos = sum(items.count("video") for items in contents)
    pixels: dict[str, torch.Tensor] = {}
    if sizes:
        pixels["pixel_values"] = torch.randn(len(sizes), 3, 3, 28, 28, generator=generator)
        pixels["image_sizes"] = torch.tensor(sizes)
        pixels["batch_num_images"] = torch.tensor(counts)
    if videos:
        pixels["pixel_values_videos"] = torch.randn(videos, 4, 3, 28, 28, generator=generator)
    return spans, pixels


def _qwen_pixels(
    family: str, contents: list[list[str]], generator: torch.Generator
) -> tuple[list[list[int]], dict[str, torch.Tensor]]:
    patch = 3 * 2 * 7 * 7
    image = [VISION_START, *[IMAGE] * 6, VISION_END]
    video = [VISION_START, *[VIDEO] * 8, VISION_END]
    if family == "qwen3_vl":  # a time stamp in front of each pair of frames
        pair = [VISION_START, *[VIDEO] * 4, VISION_END]
        video = [5, *pair, 6, *pair]
    visuals = [item for items in contents for item in items]
    images, videos = visuals.count("image"), visuals.count("video")
    pixels: dict[str, torch.Tensor] = {}
    if images:
        pixels["pixel_values"] = torch.randn(images * 24, patch, generator=generator)
        pixels["image_grid_thw"] = torch.tensor([[1, 4, 6]] * images)
    if videos:
        pixels["pixel_values_videos"] = torch.randn(videos * 32, patch, generator=generator)
        pixels["video_grid_thw"] = torch.tensor([[2, 4, 4]] * videos)
        if family == "qwen2_5_vl":
            # So slow that the time axis runs ahead of the text behind the video.
            pixels["second_per_grid_ts"] = torch.tensor([12.0] * videos)
    spans = [
        [token for item in items for token in (image if item == "image" else video)]
        for items in contents
    ]
    return spans, pixels


def _openvla_pixels(
    family: str, contents: list[list[str]], generator: torch.Generator
) -> tuple[list[list[int]], dict[str, torch.Tensor]]:
    """A picture for whatever a prompt shows; policies see one, the model takes any number."""
    spans = [[IMAGE] * 16 * len(items) for items in contents]
    pictures = sum(len(items) for items in contents)
    return spans, {"pixel_values": torch.randn(pictures, 6, 28, 28, generator=generator)}


PIXELS = {
    "llava_onevision": _llava_pixels,
    "openvla": _openvla_pixels,
    **dict.fromkeys(PARSERS, tiny_parsers.pixels),
}
