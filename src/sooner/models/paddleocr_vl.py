"""PaddleOCR-VL: pictures at their own resolution, M-RoPE on an ERNIE-4.5 decoder."""

from __future__ import annotations

from .base import Adapter


class PaddleOCRVL(Adapter):
    """Three position axes, as in Qwen2.5-VL; reads pictures only."""

    model_types = ("paddleocr_vl",)
    mrope = True
