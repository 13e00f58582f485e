"""Emu3: one decoder over words and codes; a picture's size stands in its prompt as a text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..engine.grid import TokenGrid
from ..errors import SoonerError
from .canvas import Canvas, Sampling, as_frames, id_range, rows_of, side_of, token_id

BOS, EOS, PICTURE = "<|extra_203|>", "<|extra_204|>", "<|image token|>"
BEGIN, END = "<|image start|>", "<|image end|>"
ROW_END, FRAME_END = "<|extra_200|>", "<|extra_201|>"
CODES = "<|visual token"


class Emu3Canvas(Canvas):
    """Runs Emu3 for pictures, with prompts of `Emu3Processor(...,
    return_for_image_generation=True)`.

    They end with the size in codes, which must be the canvas' own, and with `<|image token|>`.

    Under guidance the other context is a negative prompt, by default an empty one. Add
    `negative_prompt_ids` and `negative_prompt_attention_mask` to the inputs for another, as for
    HF's `generate`: processed either way, for all prompts or one for each.

    Args:
        model: an `Emu3ForConditionalGeneration` that was trained to draw.
        height, width: of the picture in pixels: multiples of 8, by default the processor's 720.

    Raises:
        SoonerError: a size that the VQ model can't decode, names missing in the config's vocabulary
            map, codes that are not side by side.
    """

    model_types = ("emu3",)
    published = Sampling(top_k=2048, guidance=3.0)

    def __init__(self, model: Any, height: int | None = None, width: int | None = None) -> None:
        vocabulary, owner = model.config.vocabulary_map, type(model).__name__
        block = 2 ** (len(model.config.vq_config.channel_multiplier) - 1)
        codes = (token for name, token in vocabulary.items() if name.startswith(CODES))
        tail = (token_id(vocabulary, name, owner) for name in (FRAME_END, END, EOS))
        grid = TokenGrid(
            side_of(height, "height", block, 90 * block, owner),
            side_of(width, "width", block, 90 * block, owner),
            codes=id_range(codes, CODES, owner),
            row_end=token_id(vocabulary, ROW_END, owner),
            tail=tuple(tail),
        )
        self._begin, self._picture, self._bos = (
            token_id(vocabulary, name, owner) for name in (BEGIN, PICTURE, BOS)
        )
        super().__init__(model, grid)

    def opened(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the prompts as they are: only the tokenizer can write a size.

        Raises:
            SoonerError: a prompt does not begin a picture, or one of another size.
        """
        for height, width in inputs.get("image_sizes", []):
            if (int(height), int(width)) != (self.grid.height, self.grid.width):
                raise SoonerError(
                    f"the prompt is for {height} x {width} codes, the canvas has "
                    f"{self.grid.height} x {self.grid.width}; make both of one size"
                )
        for prompt in rows_of(inputs):
            if prompt[-1:] != [self._picture]:
                raise SoonerError(
                    f"a prompt ends with id {prompt[-1]} and not with '{PICTURE}' "
                    f"({self._picture}); process it with return_for_image_generation=True"
                )
        return {name: value for name, value in inputs.items() if name not in NEGATIVE}

    def guided_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The negative prompt begins the same picture, as BAAI's own code has it.

        (HF's example leaves that out of the negative prompt, and so asks it for a code out of the
        blue.)
        """
        checked, prompts = self.opened(inputs), rows_of(inputs)
        negatives = self._negatives(inputs, len(prompts))
        blank = [
            negative if negative[-1:] == [self._picture] else negative + self._beginning(prompt)
            for prompt, negative in zip(prompts, negatives, strict=True)
        ]
        return self.with_prompts(checked, [*prompts, *blank])

    def _negatives(self, inputs: Mapping[str, Any], rows: int) -> list[list[int]]:
        ids = inputs.get(NEGATIVE[0])
        if ids is None:
            return [[self._bos]] * rows
        negatives = rows_of({"input_ids": ids, "attention_mask": inputs.get(NEGATIVE[1])})
        if len(negatives) not in (1, rows):
            raise SoonerError(
                f"{len(negatives)} negative prompts for {rows} prompts; give one, or one for each"
            )
        return negatives * (rows // len(negatives))

    def _beginning(self, prompt: list[int]) -> list[int]:
        """Returns what begins the picture at the end of `prompt`: mark, size and wrapper."""
        back = next((n for n, token in enumerate(reversed(prompt), 1) if token == self._begin), 0)
        if not back:
            raise SoonerError(
                f"a prompt has no '{BEGIN}' ({self._begin}); process it with "
                "return_for_image_generation=True"
            )
        return prompt[-back:]

    @torch.no_grad()
    def pixels(self, tokens: Tensor) -> Tensor:
        decoded = self.model.decode_image_tokens(
            image_tokens=tokens.to(self.device), height=self.grid.height, width=self.grid.width
        )  # [rows, 3, height, width], -1..1
        return as_frames(decoded)[:, None]


NEGATIVE = ("negative_prompt_ids", "negative_prompt_attention_mask")
