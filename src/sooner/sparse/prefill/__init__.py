"""Sparse attention inside a model: prompts go through it, decoding does not."""

from .context import MMInference
from .report import LayerReport, PrefillReport, Report

__all__ = ["LayerReport", "MMInference", "PrefillReport", "Report"]
