"""Jacobi decoding: drafts from the target's own last iteration."""

from .drafter import Round, Trace
from .gsd import GSD
from .method import CoupledJacobi

__all__ = ["GSD", "CoupledJacobi", "Round", "Trace"]
