"""Executing sparse attention: a reference, torch's fused kernels on CPUs, Triton on GPUs."""

from .partial import Backend, Partial, Reference, States
from .run import sparse_attention

__all__ = ["Backend", "Partial", "Reference", "States", "sparse_attention"]
