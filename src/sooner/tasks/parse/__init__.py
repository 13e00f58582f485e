"""Documents to Markdown: drafts of an OCR pipeline, verified by a model that reads pages.

    >>> parser = PageParser(load_parser("Qwen/Qwen3-VL-2B-Instruct"))
    >>> for page in read_pages("paper.pdf"):
    ...     print(parser(page, OCR()(page)).markdown)

`parser` parses a page, `concurrent` many at once over one engine; `regions` is its first stage,
`contexts` makes tokens of drafts, `answers` makes a page of what the model wrote, `unverified` of
what the drafter alone found; `guard` runs drafters in processes; `worker` takes a page from its
document to its files, `job` all pages of documents, and `output` says what is left to be done.
Names are imported on first use: those that decode need torch.
"""

# ruff: noqa: F401  # what types are checked by stands here for its users
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .concurrent import ConcurrentParser
    from .delivery import Delivery
    from .drafters import FirstOf
    from .guard import GuardedDrafter
    from .job import ParseJob
    from .output import ParseOutput
    from .parser import PageParser, load_parser
    from .result import DRAFT, FAILED, PARTIAL, SUCCESS, ParsedPage, ParsedRegion, StageStats
    from .settings import ParseSettings
    from .unverified import DraftParser

_HOME = {
    "concurrent": ("ConcurrentParser",), "delivery": ("Delivery",), "drafters": ("FirstOf",),
    "guard": ("GuardedDrafter",), "job": ("ParseJob",), "output": ("ParseOutput",),
    "parser": ("PageParser", "load_parser"),
    "result": ("DRAFT", "FAILED", "PARTIAL", "SUCCESS", "ParsedPage", "ParsedRegion", "StageStats"),
    "settings": ("ParseSettings",), "unverified": ("DraftParser",),
}  # fmt: skip

__all__ = sorted(name for names in _HOME.values() for name in names)


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module 'sooner.tasks.parse' has no attribute '{name}'")
