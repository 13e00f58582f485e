"""Jacobi decoding: drafts from the target's own last iteration."""

from .gsd import GSD
from .method import CoupledJacobi
from .trace import Round, Trace

__all__ = ["GSD", "CoupledJacobi", "Round", "Trace"]
