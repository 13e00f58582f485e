"""Sparse attention on CPUs: every pattern as dense blocks for torch's fused kernel."""

from .fused import Fused

__all__ = ["Fused"]
