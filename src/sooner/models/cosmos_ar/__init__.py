"""Cosmos-1.0 autoregressive video models, which `transformers` does not hold."""
