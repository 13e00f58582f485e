"""Robot policies: observations, actions, rollouts, and a client of the server.

`policy` acts on a batch of `observation`s, `allowance` says how far relaxed acceptance may go,
`client` asks a server, `rollout` closes the loop with an environment. Names are imported on first
use: most need torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .action import Action
    from .allowance import Allowance
    from .client import RemotePolicy
    from .observation import Observation
    from .policy import Policy

_HOME = {
    "Action": "action",
    "Allowance": "allowance",
    "Observation": "observation",
    "Policy": "policy",
    "RemotePolicy": "client",
}

__all__ = ["Action", "Allowance", "Observation", "Policy", "RemotePolicy"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sooner.tasks.act' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
