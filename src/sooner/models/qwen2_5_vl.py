"""Qwen2.5-VL: M-RoPE, so positions go on from the largest of the prompt's, not from its length."""

from .base import Adapter


class Qwen25VL(Adapter):
    """Three position axes; a generated token has the same value on each."""

    model_types = ("qwen2_5_vl",)
    mrope = True
