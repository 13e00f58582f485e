"""Chameleon, and Lumina-mGPT, which is Chameleon drawing in many sizes.

Words and codes share one vocabulary and one head. What spells a picture are tokens that the config
knows by name; their ids in the published checkpoints stand beside the names below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..engine.grid import TokenGrid
from ..errors import SoonerError, unknown
from .base import Adapter
from .canvas import Canvas, Sampling, as_frames, id_range, rows_of, side_of, token_id

START = "<s>"  # 0
BEGIN, END = "<racm3:break>", "<eoss>"  # 8197 and 8196
ROW_END = "<reserved08799>"  # 8803
SIZE = "<reserved{:05d}>"  # of 8800 + n: 8804 + n

IMGIMG = "IMGIMG"
"""How transformers knows a code: by this and its number in letters. Codes are 4 to 8195."""

BLOCK = 32
"""Pixels that the size tokens of Lumina-mGPT count."""


@dataclass(frozen=True)
class PictureFormat:
    """How a checkpoint spells a picture.

    Attributes:
        per_block: codes along a side of `BLOCK` pixels; `None`: one size, no size told, no row end.
        sampling: what its published code draws with.
    """

    per_block: int | None
    sampling: Sampling


LAYOUTS = {
    "chameleon": PictureFormat(None, Sampling(temperature=0.7, top_p=0.9, guidance=3.0)),
    "lumina": PictureFormat(2, Sampling(top_k=2000, guidance=3.0)),
}

Plan = tuple[TokenGrid, tuple[int, ...], tuple[int, ...]]
"""The grid, what opens a picture, and what opens one without a condition."""


class _Reader(Adapter):
    """Reads pictures as the codes that its VQ model makes of them."""

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        # The family's decoder is its whole body, so there is no call of it to stop at.
        ids, pixels = inputs["input_ids"], inputs.get("pixel_values")
        if pixels is not None:
            codes = self.model.get_image_tokens(pixels.to(self.dtype)).to(ids)  # [pictures, codes]
            here = torch.isin(ids, torch.tensor(self.visual_ids, device=ids.device))
            if int(here.sum()) != codes.numel():
                raise SoonerError(
                    f"{type(self.model).__name__}: {int(here.sum())} image placeholders do not "
                    f"match {codes.numel()} codes of the pixels; give this model its own processed "
                    "inputs"
                )
            ids = ids.masked_scatter(here, codes)
        return {"inputs_embeds": self.embedding(ids)}


class Chameleon(_Reader):
    """Chameleon in conversation: words, and wherever it begins a picture, a whole one.

    HF's own forward never says a code. This adapter does, but nowhere outside of a picture.
    """

    model_types = ("chameleon",)

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        named = any(name.startswith(IMGIMG) for name in model.config.vocabulary_map)
        self._grid = chameleon_grid(model, in_text=True) if named else None

    @property
    def grid(self) -> TokenGrid | None:
        return self._grid


class ChameleonCanvas(_Reader, Canvas):
    """Chameleon generating pictures: every new token belongs to the one picture.

    Args:
        model: a `ChameleonForConditionalGeneration`.
        height, width: of the picture in pixels, for Lumina-mGPT: multiples of 32, by default 768.
        layout: how the checkpoint spells pictures: `"chameleon"` or `"lumina"` (Lumina-mGPT). Their
            configs look alike, so it has to be said.
        decoder: makes pixels of codes, which transformers' Chameleon can't: its method
            `decode(codes [rows, height, width])` returns `[rows, 3, height, width]` in -1..1, as
            that of `chameleon_files.VQGANDecoder` does.

    Raises:
        SoonerError: a size that the model can't draw, an unknown layout, names missing in the
            config's vocabulary map, codes that are not side by side.
    """

    model_types = ("chameleon",)

    def __init__(
        self,
        model: Any,
        height: int | None = None,
        width: int | None = None,
        layout: str = "chameleon",
        decoder: Any = None,
    ) -> None:
        if layout not in LAYOUTS:
            raise unknown("layout", layout, LAYOUTS)
        self.layout, self.pixel_decoder = LAYOUTS[layout], decoder
        self.published = self.layout.sampling
        build = _square if self.layout.per_block is None else _rows
        grid, self.opening, self._blank = build(model, self.layout, height, width)
        super().__init__(model, grid)

    @property
    def _order(self) -> Tensor:
        """Number in the codebook of each id of `grid.codes`, `[codes]`."""
        low, high = self.grid.codes
        numbers = self.model.model.vocabulary_mapping.bpe2img
        return torch.tensor([numbers[token] for token in range(low, high)])

    def guided_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Without its condition a prompt is the begun picture alone.

        As published: Lumina-mGPT cuts off all that stands before the picture, and Meta's Chameleon
        leaves the begin of sequence before it. (Meta weighs pictures in the prompt apart from its
        words, with a third context; where the prompt holds none, that is the same.)
        """
        inputs = self.opened(inputs)
        prompts = rows_of(inputs)
        blank = [list(self._blank) for _ in prompts]
        return self.with_prompts(inputs, [*prompts, *blank])

    @torch.no_grad()
    def pixels(self, tokens: Tensor) -> Tensor:
        """Decode whole spans; see `Canvas.pixels`.

        Raises:
            SoonerError: no decoder was given.
        """
        if self.pixel_decoder is None:
            raise SoonerError(
                f"{type(self.model).__name__} can't turn codes into pixels, transformers has no "
                "decoder for them; pass decoder=, such as "
                "sooner.models.chameleon_files.VQGANDecoder('vqgan.ckpt')"
            )
        codes = self._order.to(tokens.device)[self.grid.pick_codes(tokens)]  # [rows, 1, h, w]
        return as_frames(self.pixel_decoder.decode(codes[:, 0]))[:, None]


def chameleon_grid(model: Any, in_text: bool = False) -> TokenGrid:
    """Returns Chameleon's square of codes; in a text it follows the token that begins it."""
    vocabulary, owner = model.config.vocabulary_map, type(model).__name__
    config = model.config.vq_config
    side = config.resolution // 2 ** (len(config.channel_multiplier) - 1)
    return TokenGrid(
        side,
        side,
        codes=_codes(vocabulary, owner),
        tail=(token_id(vocabulary, END, owner),),
        begin=token_id(vocabulary, BEGIN, owner) if in_text else None,
    )


def _square(model: Any, layout: PictureFormat, height: int | None, width: int | None) -> Plan:
    pixels, owner = model.config.vq_config.resolution, type(model).__name__
    for name, size in (("height", height), ("width", width)):
        if size not in (None, pixels):
            raise SoonerError(
                f"{name}={size}: {owner} makes pictures of {pixels} x {pixels} pixels only; leave "
                "the size out, or say layout='lumina'"
            )
    vocabulary = model.config.vocabulary_map
    begin, start = (token_id(vocabulary, name, owner) for name in (BEGIN, START))
    return chameleon_grid(model), (begin,), (start, begin)


def _rows(model: Any, layout: PictureFormat, height: int | None, width: int | None) -> Plan:
    """Returns Lumina-mGPT's rows of codes, each with an end, behind two tokens for the size."""
    vocabulary, owner = model.config.vocabulary_map, type(model).__name__
    sides = side_of(height, "height", BLOCK, 768, owner), side_of(width, "width", BLOCK, 768, owner)
    per_block = layout.per_block or 1
    grid = TokenGrid(
        sides[0] * per_block,
        sides[1] * per_block,
        codes=_codes(vocabulary, owner),
        row_end=token_id(vocabulary, ROW_END, owner),
        tail=(token_id(vocabulary, END, owner),),
    )
    marks = (BEGIN, *(SIZE.format(8800 + blocks) for blocks in sides))
    opening = tuple(token_id(vocabulary, name, owner) for name in marks)
    return grid, opening, opening


def _codes(vocabulary: Mapping[str, int], owner: str) -> tuple[int, int]:
    ids = (token for name, token in vocabulary.items() if name.startswith(IMGIMG))
    return id_range(ids, IMGIMG, owner)
