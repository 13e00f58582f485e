"""sooner: the same tokens, sooner.

Exact, batched speculative decoding for multimodal models on Hugging Face transformers.

    >>> import sooner
    >>> output = model.generate(**inputs, custom_generate=sooner.PromptLookup(), max_new_tokens=256)
    >>> output.stats.mode, output.stats.mean_acceptance_length

    >>> result = sooner.generate(model, inputs, sooner.ParallelVLM(draft), max_new_tokens=256)
    >>> result.tokens, result.stats

| method | drafts with | for |
|---|---|---|
| `PromptLookup` | n-grams of the prompt and the output | answers that copy from their prompt |
| `Speculative`, `Assistant`, `SDTree`, `OnSD` | a smaller model | any pair with one vocabulary |
| `ParallelVLM` | a smaller model that sees fewer pixels | video |
| `HSD` | texts that are given, such as OCR or a prediction | documents, edits |
| `Eagle`, `DFlash`, `DDTree` | a head that was trained for the model | chats, robot actions |
| `CoupledJacobi` | the last iteration of the model itself | pictures, clips |
| `Autoregressive` | nothing | plain decoding |

Importing this package patches nothing and loads no model: each name is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:  # for type checkers, who can't ask `__getattr__`
    from .drawing import Drawing, draw
    from .engine.request import Request
    from .engine.scheduler import Engine
    from .engine.stats.run import Stats
    from .errors import MemoryRanOutError, SoonerError, UnsupportedError
    from .generation import Generation, generate
    from .methods import (
        HSD,
        Assistant,
        AssistantModel,
        Autoregressive,
        CoupledJacobi,
        DDTree,
        DFlash,
        DFlashModel,
        Eagle,
        Eagle3Head,
        EagleHead,
        Method,
        MtpHead,
        OnSD,
        ParallelVLM,
        PromptLookup,
        Relaxed,
        SDTree,
        Speculative,
        StandingDraft,
        Tolerance,
        load_drafter,
    )
    from .models import canvas
    from .options import GenerateOptions
    from .parity import compare
    from .sparse.prefill import MMInference
    from .sparse.pruning import FastV

__all__ = [  # noqa: RUF022  (in groups)
    # Verbs.
    "generate",
    "draw",
    "canvas",
    "compare",
    "load_drafter",
    # Many requests at once.
    "Engine",
    "Request",
    # Results and options.
    "Drawing",
    "GenerateOptions",
    "Generation",
    "Stats",
    # Methods.
    "Assistant",
    "Autoregressive",
    "CoupledJacobi",
    "DDTree",
    "DFlash",
    "Eagle",
    "HSD",
    "Method",
    "OnSD",
    "ParallelVLM",
    "PromptLookup",
    "Relaxed",
    "SDTree",
    "Speculative",
    "Tolerance",
    # Trained heads and drafts in processes of their own.
    "AssistantModel",
    "DFlashModel",
    "Eagle3Head",
    "EagleHead",
    "MtpHead",
    "StandingDraft",
    # Context managers over a model: sparse prefill, pruning.
    "FastV",
    "MMInference",
    # Errors.
    "MemoryRanOutError",
    "SoonerError",
    "UnsupportedError",
]

_MODULES = {
    "drawing": ("Drawing", "draw"),
    "engine.request": ("Request",),
    "engine.scheduler": ("Engine",),
    "engine.stats.run": ("Stats",),
    "errors": ("MemoryRanOutError", "SoonerError", "UnsupportedError"),
    "generation": ("Generation", "generate"),
    "models": ("canvas",),
    "options": ("GenerateOptions",),
    "parity": ("compare",),
    "sparse.prefill": ("MMInference",),
    "sparse.pruning": ("FastV",),
}
"""Modules and their public names; all others are names of `sooner.methods`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sooner' has no attribute '{name}'")
    home = next((module for module, names in _MODULES.items() if name in names), "methods")
    value = globals()[name] = getattr(importlib.import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
