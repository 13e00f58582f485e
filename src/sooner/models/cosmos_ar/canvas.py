"""Cosmos-1 AR as a canvas: its adapter, and the places of a clip's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...engine.grid import TokenGrid
from ...engine.interface import Prompt
from ...errors import SoonerError
from ..base import Adapter
from ..canvas import Canvas, Sampling, as_frames


class CosmosAR(Adapter):
    """Continues a clip: `input_ids` are its first codes in raster order.

    Positions are raster indices, so they count tokens as a text model's do. Frame, row and column
    are worked out inside of the decoder, and so are absolute positions.
    """

    model_types = ("cosmos_ar",)

    @property
    def latent_shape(self) -> tuple[int, int, int]:
        """Returns the codes of a clip as (frames, height, width)."""
        return self.config.latent_shape

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"inputs_embeds": self.embedding(inputs["input_ids"])}


class CosmosCanvas(CosmosAR, Canvas):
    """Continues a clip to its end; `input_ids` are the codes of its first frames, in raster order.

    Args:
        model: a `CosmosARForCausalLM`.
        prefix: latent frames that the prompt holds; 2, as published, are 9 frames of pixels.
        tokenizer: makes pixels of codes: its method `decode(codes [rows, t, h, w])` returns
            `[rows, 3, frames, height, width]` in -1..1, as `PublishedTokenizer` does.

    Raises:
        SoonerError: no frame given, or none left to draw.
    """

    published = Sampling(top_p=0.8)

    def __init__(self, model: Any, prefix: int = 2, tokenizer: Any = None) -> None:
        frames, height, width = model.config.latent_shape
        if not 0 < prefix < frames:
            raise SoonerError(
                f"prefix={prefix}: a clip of {frames} latent frames is continued from 1 to "
                f"{frames - 1} of them; give one of these"
            )
        codes, places = (0, model.config.vocab_size), prefix * height * width
        grid = TokenGrid(height, width, codes=codes, frames=frames, prefix=places)
        Canvas.__init__(self, model, grid)
        self.tokenizer = tokenizer

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        """See `Adapter.embed_prompt`.

        Raises:
            SoonerError: a prompt that is not the given frames.
        """
        ids, mask = inputs["input_ids"], inputs.get("attention_mask")
        real = ids.shape[1] if mask is None else int(mask.sum(1).min())
        if (real, ids.shape[1]) != (self.grid.prefix, self.grid.prefix):
            raise SoonerError(
                f"a prompt of {real} codes, but {self.grid.prefix // self.grid.frame} latent "
                f"frames of {self.grid.height} x {self.grid.width} are {self.grid.prefix}; give "
                "these, or say prefix="
            )
        return super().embed_prompt(inputs)

    @torch.no_grad()
    def pixels(self, tokens: Tensor) -> Tensor:
        """Decode whole clips; see `Canvas.pixels`.

        Raises:
            SoonerError: no tokenizer was given.
        """
        if self.tokenizer is None:
            raise SoonerError(
                f"{type(self.model).__name__} can't turn codes into pixels; pass tokenizer=, such "
                "as sooner.models.cosmos_ar.tokenizer.PublishedTokenizer(encoder, decoder)"
            )
        clips = self.tokenizer.decode(self.grid.pick_codes(tokens))  # [rows, 3, frames, h, w]
        return as_frames(clips.movedim(1, 2))
