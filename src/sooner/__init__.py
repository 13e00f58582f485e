# ruff: noqa: F401
"""sooner: the same tokens, sooner.

Exact, batched speculative decoding for multimodal models on Hugging Face transformers. Importing
this package patches nothing and loads no model; the names below are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:  # for type checkers, who can't ask `__getattr__`
    from .drawing import Drawing, draw
    from .engine import Engine
    from .errors import SoonerError, UnsupportedError
    from .generation import Generation, generate
    from .methods import *  # noqa: F403
    from .models import canvas
    from .parity import compare
    from .request import Request
    from .sparse.compression import VisionZip
    from .sparse.prefill import MMInference
    from .sparse.pruning import DyCoke, FastV, PyramidDrop, SparseVLM
    from .stats.run import Stats

_HOME = {
    "AssistantModel": "methods",
    "DFlashModel": "methods",
    "Drawing": "drawing",
    "DyCoke": "sparse.pruning",
    "Eagle3Head": "methods",
    "MtpHead": "methods",
    "EagleHead": "methods",
    "Engine": "engine",
    "FastV": "sparse.pruning",
    "Generation": "generation",
    "MMInference": "sparse.prefill",
    "Method": "methods",
    "PyramidDrop": "sparse.pruning",
    "Request": "request",
    "SoonerError": "errors",
    "SparseVLM": "sparse.pruning",
    "SpawnedDraft": "methods",
    "StandingDraft": "methods",
    "Stats": "stats.run",
    "Tolerance": "methods",
    "UnsupportedError": "errors",
    "VisionZip": "sparse.compression",
    "canvas": "models",
    "compare": "parity",
    "draw": "drawing",
    "generate": "generation",
    "load_drafter": "methods",
}
"""Where the public names are; the methods themselves are in the registry."""


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    if name == "__all__":
        return __dir__()
    if name[:1].isupper():
        from .registry import method_types

        if name in method_types():
            return method_types()[name].load()
    raise AttributeError(f"module 'sooner' has no attribute '{name}'")


def __dir__() -> list[str]:
    from .registry import method_types

    return sorted([*_HOME, *method_types()])
