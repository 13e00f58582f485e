"""Robot policies: observations, actions and rollouts.

`policy` acts on a batch of `observation`s, `rollout` closes the loop with an environment. What
needs torch is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .observation import Observation

if TYPE_CHECKING:
    from .policy import Action, Policy

__all__ = ["Action", "Observation", "Policy"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sooner.tasks.act' has no attribute '{name}'")
    from . import policy

    return getattr(policy, name)
