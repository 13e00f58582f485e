"""Jacobi decoding: drafts from the target's own last iteration."""

from .gsd import GSD
from .method import CoupledJacobi

__all__ = ["GSD", "CoupledJacobi"]
