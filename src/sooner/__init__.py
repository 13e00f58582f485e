"""sooner: the same tokens, sooner.

Exact, batched speculative decoding for multimodal models on Hugging Face transformers. Importing
this package patches nothing and loads no model; the names below are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .decoding.parity import compare
    from .decoding.stats import Stats
    from .drawing import Drawing, draw
    from .errors import SoonerError, UnsupportedError
    from .generation import Generation, generate
    from .methods import (
        GSD,
        HSD,
        Autoregressive,
        CoupledJacobi,
        Eagle,
        EagleHead,
        Method,
        OnSD,
        ParallelVLM,
        PromptLookup,
        Relaxed,
        SDTree,
        SparseToDense,
        Speculative,
        SpecVLM,
        StandingDraft,
        Tolerance,
    )
    from .models import canvas
    from .sparse.compression import VisionZip
    from .sparse.prefill import MMInference
    from .sparse.pruning import DyCoke, FastV, PyramidDrop, SparseVLM

_HOME = {
    "GSD": "methods",
    "HSD": "methods",
    "Autoregressive": "methods",
    "CoupledJacobi": "methods",
    "Drawing": "drawing",
    "DyCoke": "sparse.pruning",
    "Eagle": "methods",
    "EagleHead": "methods",
    "FastV": "sparse.pruning",
    "Generation": "generation",
    "MMInference": "sparse.prefill",
    "Method": "methods",
    "OnSD": "methods",
    "ParallelVLM": "methods",
    "PromptLookup": "methods",
    "Relaxed": "methods",
    "SDTree": "methods",
    "PyramidDrop": "sparse.pruning",
    "SoonerError": "errors",
    "SparseToDense": "methods",
    "SpecVLM": "methods",
    "VisionZip": "sparse.compression",
    "SparseVLM": "sparse.pruning",
    "Speculative": "methods",
    "StandingDraft": "methods",
    "Stats": "decoding.stats",
    "Tolerance": "methods",
    "UnsupportedError": "errors",
    "canvas": "models",
    "compare": "decoding.parity",
    "draw": "drawing",
    "generate": "generation",
}

__all__ = [
    "GSD",
    "HSD",
    "Autoregressive",
    "CoupledJacobi",
    "Drawing",
    "DyCoke",
    "Eagle",
    "EagleHead",
    "FastV",
    "Generation",
    "MMInference",
    "Method",
    "OnSD",
    "ParallelVLM",
    "PromptLookup",
    "PyramidDrop",
    "Relaxed",
    "SDTree",
    "SoonerError",
    "SparseToDense",
    "SparseVLM",
    "SpecVLM",
    "Speculative",
    "StandingDraft",
    "Stats",
    "Tolerance",
    "UnsupportedError",
    "VisionZip",
    "canvas",
    "compare",
    "draw",
    "generate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sooner' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
