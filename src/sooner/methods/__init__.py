# ruff: noqa: F401
"""Methods: one file each, saying how a draft is made. Each is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..registry import method_types

if TYPE_CHECKING:  # for type checkers, who can't ask `__getattr__`
    from .aligned.method import HSD
    from .assistant.method import Assistant
    from .assistant.model import AssistantModel
    from .base import Autoregressive, Method, SoonerOutput
    from .dflash.method import DDTree, DFlash
    from .dflash.model import DFlashModel
    from .eagle.eagle3 import Eagle3Head
    from .eagle.head import EagleHead
    from .eagle.method import Eagle
    from .eagle.mtp import MtpHead
    from .jacobi.method import CoupledJacobi
    from .parallel.method import ParallelVLM
    from .parallel.standing import StandingDraft
    from .prompt_lookup import PromptLookup
    from .sd_tree import SDTree
    from .speculative import OnSD, Speculative
    from .tolerance import Relaxed, Tolerance
    from .trained import load_drafter

_HOME = {
    "AssistantModel": "assistant.model", "DFlashModel": "dflash.model",
    "Eagle3Head": "eagle.eagle3", "MtpHead": "eagle.mtp", "EagleHead": "eagle.head",
    "Method": "base", "SoonerOutput": "base", "StandingDraft": "parallel.standing",
    "Tolerance": "tolerance", "load_drafter": "trained",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    if name[:1].isupper() and name in method_types():
        return method_types()[name].load()
    raise AttributeError(f"module 'sooner.methods' has no attribute '{name}'")
