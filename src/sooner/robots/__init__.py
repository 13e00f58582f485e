"""The interface of environments for closed-loop rollouts, and a table drawn by numpy.

Simulators are in `sooner-lab`, which adds them by an entry point.
"""

from __future__ import annotations

from .environment import Environment, StepResult

__all__ = ["Environment", "StepResult"]
