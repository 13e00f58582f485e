"""OpenVLA policies, which `transformers` does not hold."""
