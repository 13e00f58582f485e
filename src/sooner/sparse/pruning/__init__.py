"""Lossy pruning of a target's visual tokens: one context manager a file, all *approximate*."""

from .hooks import Pruner
from .ranked import FastV, PyramidDrop
from .sparse_vlm import SparseVLM

PRUNERS: dict[str, type[Pruner]] = {
    pruner.name: pruner for pruner in (FastV, SparseVLM, PyramidDrop)
}

__all__ = ["PRUNERS", "FastV", "Pruner", "PyramidDrop", "SparseVLM"]
