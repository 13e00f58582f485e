"""Sparse attention inside a model: prompts go through it, decoding does not."""

from .attend import prompt_attention
from .context import MMInference
from .report import LayerReport, PrefillReport, Report

__all__ = ["LayerReport", "MMInference", "PrefillReport", "Report", "prompt_attention"]
