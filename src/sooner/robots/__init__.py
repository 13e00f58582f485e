"""Simulated environments for closed-loop rollouts. Importing this loads no simulator."""

from __future__ import annotations

from .environment import Environment, Step

__all__ = ["Environment", "Step"]
