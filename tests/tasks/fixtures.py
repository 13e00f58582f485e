"""Random LLaVA-OneVision checkpoints in real folders, as small as they can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoProcessor,
    GenerationConfig,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    Qwen2Config,
)

from sooner import miniatures
from tasks import videos

POSITIONS = 400


def random_model(layers: int = 2) -> LlavaOnevisionForConditionalGeneration:
    """A random model with the video miniature's vocabulary and pixels, and few weights."""
    folder = miniatures.find("video").target
    config = LlavaOnevisionConfig.from_pretrained(folder)
    text: dict[str, Any] = config.text_config.to_dict() | {
        "num_hidden_layers": layers, "hidden_size": 32, "num_attention_heads": 2,
        "num_key_value_heads": 1, "intermediate_size": 48, "layer_types": None,
    }  # fmt: skip
    config.text_config = Qwen2Config(**text)
    vision = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2}
    for name, value in {**vision, "intermediate_size": 64}.items():
        setattr(config.vision_config, name, value)
    model = LlavaOnevisionForConditionalGeneration(config).float()
    model.generation_config = GenerationConfig.from_pretrained(folder)
    return model


def save(model: LlavaOnevisionForConditionalGeneration, folder: Path) -> Path:
    """Write a checkpoint folder: fp16 weights, and the video miniature's own processor."""
    model.half().save_pretrained(folder)
    AutoProcessor.from_pretrained(miniatures.find("video").target).save_pretrained(folder)
    return folder


def checkpoint(folder: Path, seed: int, positions: int = POSITIONS, layers: int = 2) -> Path:
    """A random model in a folder.

    Weights are large, so that the text depends on everything before it.
    """
    torch.manual_seed(seed)
    model = random_model(layers)
    for name, weights in model.named_parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.5 if "embed" in name else 0.3)
    model.config.text_config.max_position_embeddings = positions
    model.generation_config.eos_token_id = None  # random text would end at random
    return save(model, folder)


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoint(tmp_path_factory.mktemp("models") / "target", 0)


@pytest.fixture(scope="session")
def draft_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target's own weights: every draft token is accepted, unless positions go wrong."""
    return checkpoint(tmp_path_factory.mktemp("models") / "draft", 0)


@pytest.fixture(scope="session")
def poor_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Other weights: hardly a draft token is accepted."""
    return checkpoint(tmp_path_factory.mktemp("models") / "poor", 1)


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 frames of H.264."""
    return videos.write(tmp_path_factory.mktemp("clips") / "clip.mp4")
