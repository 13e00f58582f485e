"""Sparse indices: which keys each head sees of a plane, ready for a kernel."""

from .base import Index
from .grid import GridIndex
from .lines import LineIndex

__all__ = ["GridIndex", "Index", "LineIndex"]
