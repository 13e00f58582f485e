"""Janus and Janus-Pro: one decoder, and a vocabulary of codes beside the one of words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..engine.grid import TokenGrid
from ..errors import SoonerError
from .base import padding_mask
from .canvas import Canvas, Sampling


class JanusCanvas(Canvas):
    """Janus generating pictures: after `<begin_of_image>` every token is a code of its VQ model.

    The prompt is what `JanusProcessor(..., generation_mode="image")` returns.

    Raises:
        SoonerError: a size that the VQ model can't decode.
    """

    model_types = ("janus",)
    speaks_prompt = False
    published = Sampling(guidance=5.0)

    def __init__(self, model: Any, height: int | None = None, width: int | None = None) -> None:
        config = model.config.vq_config
        side = config.num_patches
        pixels = side * 2 ** (len(config.channel_multiplier) - 1)
        for name, size in (("height", height), ("width", width)):
            if size is not None and size != pixels:
                raise SoonerError(
                    f"{name}={size}: {type(model).__name__} makes pictures of {pixels} x {pixels} "
                    "pixels only; leave the size out"
                )
        super().__init__(model, TokenGrid(side, side, codes=(0, config.num_embeddings)))

    @property
    def vocab_size(self) -> int:
        return int(self.config.vq_config.num_embeddings)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        return self.model.prepare_embeddings_for_image_generation(tokens)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.model.generation_head(hidden).to(self.device)

    def guided_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Without its condition a prompt is padding between its two marks, at the same places."""
        ids, mask = inputs["input_ids"], padding_mask(inputs)
        config = self.model.generation_config
        begin = config.generation_kwargs["boi_token_id"]
        blank = ids.masked_fill((ids != config.bos_token_id) & (ids != begin), config.pad_token_id)
        return {"input_ids": torch.cat([ids, blank]), "attention_mask": mask.repeat(2, 1)}

    @torch.no_grad()
    def pixels(self, tokens: Tensor) -> Tensor:
        decoded = self.model.decode_image_tokens(tokens.to(self.device))  # [rows, h, w, 3], -1..1
        return decoded.float().add(1).div(2).clamp(0, 1)[:, None]
