"""Random LLaVA-OneVision checkpoints in real folders, as small as they can be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tasks import videos

SIZES = {
    "layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "intermediate": 48, "vocab": 192,
    "vision_layers": 1, "vision_width": 32, "vision_heads": 2,
}  # fmt: skip
POSITIONS = 400


def checkpoint(folder: Path, seed: int, positions: int = POSITIONS, **sizes: Any) -> Path:
    """A random model with the video miniature's own processor; skips the test without the lab.

    Weights are large, so that the text depends on everything before it.

    Args:
        sizes: of the model, instead of those in `SIZES`.
    """
    architecture = pytest.importorskip("sooner_lab.worlds.video.architecture")
    build = pytest.importorskip("sooner_lab.worlds.video.build")
    torch.manual_seed(seed)
    model = architecture.build_model(architecture.VideoShape(**{**SIZES, **sizes}))
    for name, weights in model.named_parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.5 if "embed" in name else 0.3)
    model.config.text_config.max_position_embeddings = positions
    model.generation_config.eos_token_id = None  # random text would end at random
    build.save(model, folder)
    return folder


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
