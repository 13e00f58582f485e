"""Pictures from prompts, and clips continued: `imagine` and `continue_clip`.

`loading` gets an easel (a model that draws, with what makes its inputs), `settings` say how,
`job` runs one input, `progress` watches it, `writing` puts it on disk with its
metadata. Names are imported on first use: most need torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Callbacks
    from .drawing_model import Easel
    from .job import Made, continue_clip, imagine
    from .loading import load_easel
    from .settings import ImagineSettings

_HOME = {
    "Callbacks": "batch",
    "Easel": "drawing_model",
    "ImagineSettings": "settings",
    "Made": "job",
    "continue_clip": "job",
    "imagine": "job",
    "load_easel": "loading",
}

__all__ = [
    "Callbacks",
    "Easel",
    "ImagineSettings",
    "Made",
    "continue_clip",
    "imagine",
    "load_easel",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sooner.tasks.imagine' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
