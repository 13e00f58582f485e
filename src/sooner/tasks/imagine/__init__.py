"""Pictures from prompts, and clips continued: `imagine` and `continue_clip`.

`load_drawing_model` loads a model that generates pictures, with the processor or video tokenizer
that makes its inputs; `ImagineSettings` says how; `job` runs one input, `batch` draws and collects
what is drawn after each round, `writing` writes files with their metadata. Names are imported on
first use: most need torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import DrawCallbacks
    from .drawing_model import DrawingModel
    from .job import ImagineResult, continue_clip, imagine
    from .loading import load_drawing_model
    from .settings import ImagineSettings

_HOME = {
    "DrawCallbacks": "batch",
    "DrawingModel": "drawing_model",
    "ImagineSettings": "settings",
    "ImagineResult": "job",
    "continue_clip": "job",
    "imagine": "job",
    "load_drawing_model": "loading",
}

__all__ = [
    "DrawCallbacks",
    "DrawingModel",
    "ImagineResult",
    "ImagineSettings",
    "continue_clip",
    "imagine",
    "load_drawing_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sooner.tasks.imagine' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
