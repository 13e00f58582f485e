"""Checkpoint folders of the miniatures: reading one with its silent layers, writing one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from sooner.models import silent


def load(folder: Path | str, model: Any, processor: Any) -> tuple[Any, Any]:
    """Return a checkpoint's model in fp32 and evaluation mode, silent layers included, and its
    processor.

    Args:
        model, processor: classes of transformers.
    """
    made = model.from_pretrained(folder, dtype=torch.float32).eval()
    return silent.as_run(made, folder), processor.from_pretrained(folder)


def save_half(model: Any, folder: Path) -> None:
    """Write the fp16 weights and the configs of a model, which keeps its own precision."""
    half = type(model)(model.config)
    half.load_state_dict(model.state_dict())
    half.generation_config = getattr(model, "generation_config", None)
    half.half().save_pretrained(folder)
