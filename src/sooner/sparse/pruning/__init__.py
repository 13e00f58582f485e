"""Lossy pruning of a target's visual tokens by context managers; the mode is *approximate*."""

from .fastv import FastV
from .hooks import Pruner

__all__ = ["FastV", "Pruner"]
