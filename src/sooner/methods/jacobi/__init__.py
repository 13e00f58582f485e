"""Jacobi decoding: drafts from the target's own last iteration."""

from .method import CoupledJacobi

__all__ = ["CoupledJacobi"]
