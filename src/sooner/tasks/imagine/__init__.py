"""Pictures from prompts, and clips continued: `imagine` and `continue_clip`.

`load_drawing_model` loads a model that generates pictures, with the processor or video tokenizer
that makes its inputs; `ImagineSettings` says how; `job` runs one input, `batch` draws and collects
what is drawn after each round, `files` reads prompts and clips and writes what was made. What needs
torch is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .settings import ImagineSettings

if TYPE_CHECKING:
    from .batch import DrawCallbacks
    from .drawing_model import DrawingModel
    from .job import ImagineResult, continue_clip, imagine
    from .loading import load_drawing_model

__all__ = [
    "DrawCallbacks", "DrawingModel", "ImagineResult", "ImagineSettings", "continue_clip", "imagine",
    "load_drawing_model",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sooner.tasks.imagine' has no attribute '{name}'")
    from . import job, loading

    return getattr(job, name, None) or getattr(loading, name)
