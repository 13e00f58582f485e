"""A policy behind HTTP: `POST /act` as OpenVLA's clients send it, batched over robots.

`settings` say how, `wire` reads and writes the JSON, `policy_engine` makes ragged batches of what
comes in, `act` is the application and `run` the process. Importing this imports no web framework.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .act import create_app
    from .run import serve
    from .settings import ServeSettings

_HOME = {"ServeSettings": "settings", "create_app": "act", "serve": "run"}

__all__ = ["ServeSettings", "create_app", "serve"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sooner.serve' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
