"""Random LLaVA-OneVision checkpoints in real folders, as small as they can be."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sooner_lab.worlds.video import architecture, build
from tasks import videos

SMALL = architecture.Shape(2, 32, 2, 1, 48, 192, 1, 32, 2)
POSITIONS = 400


def checkpoint(
    folder: Path,
    seed: int,
    positions: int = POSITIONS,
    shape: architecture.Shape = SMALL,
) -> Path:
    """A random model with the miniature's own processor.

    Weights are large, so that the text depends on everything before it.
    """
    torch.manual_seed(seed)
    model = architecture.build_model(shape)
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
