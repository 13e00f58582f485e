"""Simulated environments for closed-loop rollouts. Importing this loads no simulator."""

from __future__ import annotations

from .environment import Environment, StepResult

__all__ = ["Environment", "StepResult"]
