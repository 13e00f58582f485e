"""Executing sparse attention: a reference, torch's fused kernels on CPUs, Triton on GPUs."""

from ..pairs import Backend
from .partial import Partial, States
from .reference import Reference
from .run import sparse_attention

__all__ = ["Backend", "Partial", "Reference", "States", "sparse_attention"]
