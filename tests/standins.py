"""Checkpoint folders that bring their own code: stand-ins with the interface of published ones.

`dots.ocr`: a Qwen2 with a vision tower beside it (`dots_vit`), which embeds in its own forward
(`prepare_inputs_embeds(input_ids, pixel_values, grid_thw, img_mask)`), and a processor as that of
Qwen2.5-VL. `DeepSeek-OCR`: a mixture of experts whose *decoder* takes `images` (pairs of crops and
whole pictures, a pair a row), `images_seq_mask` and `images_spatial_crop`; no processor beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    dynamic_module_utils,
)

import tiny

DOTS_CONFIGURATION = """
from transformers import PretrainedConfig, Qwen2Config
from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
from transformers.processing_utils import ProcessorMixin


class DotsVisionConfig(PretrainedConfig):
    model_type = "dots_vit"

    def __init__(self, embed_dim=32, hidden_size=48, patch_size=7, spatial_merge_size=2, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim, self.hidden_size = embed_dim, hidden_size
        self.patch_size, self.spatial_merge_size = patch_size, spatial_merge_size


class DotsOCRConfig(Qwen2Config):
    model_type = "dots_ocr"

    def __init__(self, image_token_id=151665, video_token_id=151656, vision_config=None, **kwargs):
        super().__init__(**kwargs)
        self.image_token_id, self.video_token_id = image_token_id, video_token_id
        self.vision_config = DotsVisionConfig(**(vision_config or {}))


class DotsVLProcessor(Qwen2_5_VLProcessor):
    def __init__(self, image_processor=None, tokenizer=None, chat_template=None, **kwargs):
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id, self.video_token_id = IMAGE, VIDEO
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)
"""

DOTS_MODELING = """
import torch
from torch import nn
from transformers import Qwen2ForCausalLM

from .configuration_dots import DotsOCRConfig


class DotsVisionTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.patches = nn.Linear(3 * config.patch_size**2, config.embed_dim)
        self.merger = nn.Linear(config.embed_dim * config.spatial_merge_size**2, config.hidden_size)
        self.merged = config.spatial_merge_size**2

    def forward(self, hidden_states, grid_thw):
        states = self.patches(hidden_states[:, : self.patches.in_features]).tanh()
        merged = self.merger(states.view(len(states) // self.merged, -1))
        counts = (grid_thw.prod(-1) // self.merged).tolist()
        return torch.cat([part + part.mean(0) for part in merged.split(counts)])


class DotsOCRForCausalLM(Qwen2ForCausalLM):
    config_class = DotsOCRConfig

    def __init__(self, config):
        super().__init__(config)
        self.vision_tower = DotsVisionTransformer(config.vision_config)

    def prepare_inputs_embeds(self, input_ids, pixel_values=None, grid_thw=None, img_mask=None):
        embeds = self.get_input_embeddings()(input_ids)
        if pixel_values is None:
            return embeds
        seen = self.vision_tower(pixel_values, grid_thw)
        assert len(seen) == img_mask.sum()
        return embeds.masked_scatter(img_mask[..., None].expand_as(embeds), seen)

    def forward(
        self, input_ids=None, pixel_values=None, image_grid_thw=None, inputs_embeds=None,
        attention_mask=None, position_ids=None, past_key_values=None, **kwargs,
    ):
        if inputs_embeds is None:
            inputs_embeds = self.prepare_inputs_embeds(
                input_ids, pixel_values, image_grid_thw, input_ids == self.config.image_token_id
            )
        return super().forward(
            inputs_embeds=inputs_embeds, attention_mask=attention_mask, position_ids=position_ids,
            past_key_values=past_key_values, **kwargs,
        )

    def prepare_inputs_for_generation(
        self, input_ids, past_key_values=None, pixel_values=None, image_grid_thw=None, **kwargs
    ):
        made = super().prepare_inputs_for_generation(
            input_ids, past_key_values=past_key_values, **kwargs
        )
        if past_key_values is None or not past_key_values.get_seq_length():
            made |= {"pixel_values": pixel_values, "image_grid_thw": image_grid_thw}
        return made
"""

DEEPSEEK_MODELING = """
import torch
from torch import nn
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV2Model

PICTURES = ("images", "images_seq_mask", "images_spatial_crop")


class DeepseekOCRConfig(DeepseekV2Config):
    model_type = "DeepseekOCR"


class DeepseekOCRModel(DeepseekV2Model):
    config_class = DeepseekOCRConfig

    def __init__(self, config):
        super().__init__(config)
        self.sam_model = nn.Linear(3 * 7 * 7, 16)
        self.vision_model = nn.Linear(16, 16)
        self.projector = nn.Linear(32, config.hidden_size)
        self.image_newline = nn.Parameter(torch.ones(config.hidden_size))
        self.view_seperator = nn.Parameter(torch.ones(config.hidden_size))

    def look(self, pictures):
        patches = pictures.unfold(2, 7, 7).unfold(3, 7, 7).permute(0, 2, 3, 1, 4, 5).flatten(3)
        one = self.sam_model(patches).tanh()
        return self.projector(torch.cat([self.vision_model(one), one], -1))

    def lines(self, features):
        height, _, size = features.shape
        return torch.cat([features, self.image_newline.expand(height, 1, size)], 1).view(-1, size)

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None,
        inputs_embeds=None, use_cache=None, images=None, images_seq_mask=None,
        images_spatial_crop=None, **kwargs,
    ):
        if inputs_embeds is None:
            inputs_embeds = self.get_input_embeddings()(input_ids)
        more = input_ids.shape[1] != 1 or self.training
        if self.sam_model is not None and more and torch.sum(images[0][1]).item() != 0:
            for row, (crops, whole) in enumerate(images):
                seen = []
                if torch.sum(crops).item() != 0:
                    across, down = images_spatial_crop[row].tolist()
                    parts = self.look(crops)
                    _, height, width, size = parts.shape
                    parts = parts.view(down, across, height, width, size).transpose(1, 2)
                    seen.append(self.lines(parts.reshape(down * height, across * width, size)))
                seen += [self.lines(self.look(whole)[0]), self.view_seperator[None]]
                inputs_embeds[row].masked_scatter_(images_seq_mask[row][:, None], torch.cat(seen))
        return super().forward(
            input_ids=None, attention_mask=attention_mask, past_key_values=past_key_values,
            inputs_embeds=inputs_embeds, use_cache=use_cache, position_ids=position_ids, **kwargs,
        )


class DeepseekOCRForCausalLM(DeepseekV2ForCausalLM):
    config_class = DeepseekOCRConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = DeepseekOCRModel(config)
        self.post_init()

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None,
        inputs_embeds=None, use_cache=None, images=None, images_seq_mask=None,
        images_spatial_crop=None, **kwargs,
    ):
        return super().forward(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids,
            past_key_values=past_key_values, inputs_embeds=inputs_embeds, use_cache=use_cache,
            images=images, images_seq_mask=images_seq_mask,
            images_spatial_crop=images_spatial_crop, **kwargs,
        )

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        seen = {name: kwargs.pop(name, None) for name in PICTURES}
        return {**super().prepare_inputs_for_generation(input_ids, **kwargs), **seen}
"""

DOTS: dict[str, Any] = {
    "model_type": "dots_ocr",
    "auto_map": {
        "AutoConfig": "configuration_dots.DotsOCRConfig",
        "AutoModelForCausalLM": "modeling_dots_ocr.DotsOCRForCausalLM",
    },
    "image_token_id": tiny.IMAGE,
    "video_token_id": tiny.VIDEO,
    "num_hidden_layers": 3,
    "vision_config": {"model_type": "dots_vit"},
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_vl_v2",
    "auto_map": {
        "AutoConfig": "modeling_deepseekocr.DeepseekOCRConfig",
        "AutoModel": "modeling_deepseekocr.DeepseekOCRForCausalLM",
    },
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
}
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|> <|image_pad|> <|vision_end|> "
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


@contextmanager
def isolated_modules(home: Path) -> Iterator[None]:
    """Code of checkpoints is copied to `home` and imported from there, as in a fresh process.

    A process imports `transformers_modules` from one folder alone: what another test imported from
    another folder would hide the code that is copied here, and the other way round.
    """

    def imported() -> dict[str, Any]:
        package = dynamic_module_utils.TRANSFORMERS_DYNAMIC_MODULE_NAME
        return {
            name: module for name, module in sys.modules.items() if name.split(".")[0] == package
        }

    cache, path, before = dynamic_module_utils.HF_MODULES_CACHE, list(sys.path), imported()
    for name in before:
        del sys.modules[name]
    dynamic_module_utils.HF_MODULES_CACHE = str(home)
    sys.path[:] = [
        folder for folder in path if folder != cache
    ]  # the other folder also holds a package
    try:
        yield
    finally:
        for name in imported():
            del sys.modules[name]
        sys.modules.update(before)
        sys.path[:] = path
        dynamic_module_utils.HF_MODULES_CACHE = cache


def dots(folder: Path, tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> Path:
    """A stand-in of dots.ocr."""
    configuration = DOTS_CONFIGURATION.replace("IMAGE", str(tiny.IMAGE))
    _write(folder, "configuration_dots.py", configuration.replace("VIDEO", str(tiny.VIDEO)))
    _write(folder, "modeling_dots_ocr.py", DOTS_MODELING)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    pictures = Qwen2VLImageProcessor(
        patch_size=7, merge_size=2, temporal_patch_size=1, min_pixels=28 * 28
    )
    pictures.save_pretrained(folder)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    settings["processor_class"] = "DotsVLProcessor"
    settings["auto_map"] = {"AutoProcessor": "configuration_dots.DotsVLProcessor"}
    _write(folder, "preprocessor_config.json", json.dumps(settings))
    return _weights(folder, AutoModelForCausalLM, DOTS, seed)


def deepseek(folder: Path, tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> Path:
    """A stand-in of DeepSeek-OCR."""
    _write(folder, "modeling_deepseekocr.py", DEEPSEEK_MODELING)
    tokenizer.save_pretrained(folder)
    return _weights(folder, AutoModel, DEEPSEEK, seed)


def _write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def _weights(folder: Path, auto: Any, config: dict[str, Any], seed: int) -> Path:
    """Random weights for the code in a folder, and the config that names it."""
    raw = {**tiny.TEXT, **config}
    _write(folder, "config.json", json.dumps(raw))
    torch.manual_seed(seed)
    built = auto.from_config(
        AutoConfig.from_pretrained(folder, trust_remote_code=True), trust_remote_code=True
    )
    for name, weights in built.named_parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.25 if "embed" in name else 0.12)
    built.generation_config.eos_token_id = None  # random text would end at random
    built.generation_config.pad_token_id = tiny.PAD
    built.save_pretrained(folder)
    _write(folder, "config.json", json.dumps(raw))
    return folder


def deepseek_inputs(rows: int = 3, seed: int = 0) -> dict[str, Any]:
    """Ragged prompts that show a picture of 14 x 14 each, the last two in 2 x 1 crops too."""
    generator = torch.Generator().manual_seed(seed)
    prompts, masks, images, crops = [], [], [], []
    for row in range(rows):
        parts = 2 if row else 0
        whole = torch.randn(1, 3, 14, 14, generator=generator)
        crop = torch.randn(parts, 3, 14, 14, generator=generator) if parts else torch.zeros(1)
        images.append((crop, whole))
        crops.append([max(parts, 1), 1])
        span = (10 if parts else 0) + 2 * 3 + 1  # 2 lines of 4 and a newline, 2 of 2 and one
        words = torch.randint(0, 80, (6 + 2 * row,), generator=generator).tolist()
        prompts.append([*words[:2], *[tiny.IMAGE] * span, *words[2:]])
        masks.append([False] * 2 + [True] * span + [False] * (len(words) - 2))
    width = max(len(prompt) for prompt in prompts)
    pad = [width - len(prompt) for prompt in prompts]
    mask = [[0] * n + [1] * len(p) for n, p in zip(pad, prompts, strict=True)]
    return {
        "input_ids": torch.tensor([[tiny.PAD] * n + p for n, p in zip(pad, prompts, strict=True)]),
        "attention_mask": torch.tensor(mask),
        "images": images,
        "images_seq_mask": torch.tensor([[False] * n + m for n, m in zip(pad, masks, strict=True)]),
        "images_spatial_crop": torch.tensor(crops),
    }
