"""dots.ocr: its own vision tower before a Qwen2 decoder; its code comes with the checkpoint."""

from __future__ import annotations

from typing import Any

from .base import Adapter


class DotsOCR(Adapter):
    """One running position for every token, visual ones included."""

    model_types = ("dots_ocr",)

    @property
    def body(self) -> Any:
        """The published class is a Qwen2 with a tower beside it, and embeds in its own forward."""
        return self.model
