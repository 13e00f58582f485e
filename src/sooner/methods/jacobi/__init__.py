"""Jacobi decoding: drafts from the target's own last iteration."""

from .method import CoupledJacobi
from .trace import Round, Trace

__all__ = ["CoupledJacobi", "Round", "Trace"]
