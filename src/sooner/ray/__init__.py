"""Stages of `sooner parse` for Ray Data, each usable alone in `map_batches`, and the job of them.

    >>> import ray, sooner.ray
    >>> rows = ray.data.from_items([{"path": "paper.pdf", "page": 1}])
    >>> rows.map_batches(sooner.ray.OCR).map_batches(
    ...     sooner.ray.Parser, fn_constructor_kwargs={"model": "zai-org/GLM-OCR"}
    ... )

`OCR` drafts pages, `Parser` verifies them over one continuous engine, `Write` puts them into a
folder of results; `stages` says what their rows hold. `RayJob` is all of it (`sooner parse --ray`):
`nodes` says what each stage may take of the cluster and checks every machine before a model is
loaded, and `cluster` connects. Names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .job import RayJob
    from .parser import ParserStage as Parser
    from .stages import OCRStage as OCR  # noqa: N814
    from .stages import WriteStage as Write

_HOME = {
    "OCR": ("stages", "OCRStage"),
    "Parser": ("parser", "ParserStage"),
    "RayJob": ("job", "RayJob"),
    "Write": ("stages", "WriteStage"),
}

__all__ = ["OCR", "Parser", "RayJob", "Write"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sooner.ray' has no attribute '{name}'")
    home, kind = _HOME[name]
    return getattr(importlib.import_module(f".{home}", __name__), kind)
