"""Cosmos-1.0 autoregressive video models, which `transformers` does not hold."""

from __future__ import annotations

from .canvas import CosmosAR, CosmosCanvas
from .checkpoint import load_published
from .config import CosmosARConfig
from .model import CosmosARForCausalLM, CosmosARModel
from .tokenizer import PublishedTokenizer

__all__ = [
    "CosmosAR",
    "CosmosARConfig",
    "CosmosARForCausalLM",
    "CosmosARModel",
    "CosmosCanvas",
    "PublishedTokenizer",
    "load_published",
]
