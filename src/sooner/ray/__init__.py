"""`sooner parse` and `sooner serve` on Ray, and the stage of pages for your own `map_batches`.

    >>> import ray, sooner.ray
    >>> rows = ray.data.from_items([{"path": "paper.pdf", "page": 1}])
    >>> rows.map_batches(
    ...     sooner.ray.Parser, fn_constructor_kwargs={"model": "zai-org/GLM-OCR"}, num_gpus=1,
    ...     concurrency=1, batch_size=1,
    ... )

`Parser` reads, drafts and parses pages over one continuous engine.
`RayJob` is `sooner parse --ray`, and `serving` is `sooner serve --ray`. `nodes` says what an actor
may take of a cluster and checks every machine before a model is loaded; `cluster` connects. Names
are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .job import RayJob
    from .parser import Parser

_MODULES = {"Parser": "parser", "RayJob": "job"}

__all__ = ["Parser", "RayJob"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sooner.ray' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
