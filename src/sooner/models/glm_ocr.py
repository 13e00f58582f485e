"""GLM-OCR: M-RoPE as in GLM-4.1V, on a small decoder."""

from __future__ import annotations

from .base import Adapter


class GlmOCR(Adapter):
    """Three position axes; a generated token has the same value on each."""

    model_types = ("glm_ocr",)
    mrope = True
