"""Plain text decoders, as text-only drafts or as targets of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import Adapter


class TextModel(Adapter):
    """A decoder-only language model with 1-D RoPE."""

    model_types = ("qwen2", "llama")

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"inputs_embeds": self.embedding(inputs["input_ids"])}
