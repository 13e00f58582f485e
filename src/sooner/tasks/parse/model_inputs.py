"""A processor's inputs for pictures and a prompt, and the grid of visual tokens over a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from ...documents import Page
from ...documents.page import Picture
from ...documents.regions import Box, clipped, scaled
from ...errors import SoonerError
from ..prompting import bos_options, chat, on_device, positions_left


def picture_inputs(
    processor: Any, pictures: Sequence[Picture], prompt: str | Sequence[str], model: Any,
    template: str = "",
) -> dict[str, Any]:  # fmt: skip
    """Returns inputs for one prompt a picture, padded on the left, `input_ids [rows, width]`.

    Args:
        pictures: RGB, `[height, width, 3]` uint8 each.
        prompt: a text for each picture, or the same for all.
        template: what is around a prompt, where the processor has no chat template: `{prompt}`
            stands for it, see `Ask.template`.

    Raises:
        SoonerError: the processor refuses a picture.
    """
    prompts = [prompt] * len(pictures) if isinstance(prompt, str) else prompt
    texts = [message_of(processor, entry, template) for entry in prompts]
    try:
        batch = processor(
            text=texts,
            # Processors without a chat template take pictures in one list.
            images=list(pictures) if template else [[picture] for picture in pictures],
            padding=True,
            padding_side="left",
            return_tensors="pt",
            **bos_options(processor, texts[0]),
        )
    except (ValueError, TypeError) as error:
        text = " ".join(str(error).split())[:120]
        raise SoonerError(f"{type(processor).__name__} refuses the picture: {text}") from error
    return on_device(batch, model)


def message_of(processor: Any, prompt: str, template: str = "") -> str:
    """Returns a prompt about one picture as the model wants it.

    Raises:
        SoonerError: there is no template, and the processor has no chat template.
    """
    return template.replace("{prompt}", prompt) if template else chat(processor, prompt, "image")


def room_for(model: Any, inputs: Mapping[str, Any], count: int) -> int:
    """Returns how many new tokens may follow the prompt, `count` at most; see `positions_left`."""
    return min(count, positions_left(model, inputs, "the page makes", "lower the dpi"))


SLACK = 0.125
"""Share of a cell's side by which a box may reach into a cell that is not its own: drafters draw
boxes somewhat larger than the text."""


@dataclass(frozen=True)
class Cells:
    """A page cut into squares, each of which one visual token sees.

    Attributes:
        side: of a square, in pixels of the page as the model sees it.
        size: width and height of the page as the model sees it, multiples of `side`.
        minimum: pixels that a picture must have so that the processor does not enlarge it.
    """

    side: int
    size: tuple[int, int]
    minimum: int = 0

    def picture(self, page: Page) -> Picture:
        """The page as the model sees it, `[height, width, 3]` uint8."""
        if page.size == self.size:
            return page.picture
        return np.array(Image.fromarray(page.picture).resize(self.size, Image.Resampling.BICUBIC))

    def crop(self, picture: Picture, bbox: Box, size: tuple[int, int]) -> Picture:
        """Returns the squares that a box lies in, so that they look as they do on the page.

        Where they are fewer pixels than `minimum`, white ones follow to the right, or below those
        that are wide enough: a picture that the processor enlarges would look different.

        Args:
            picture: from `picture`.
            bbox: in pixels of a page of `size`, on the page.
        """
        box = scaled(bbox, self.size[0] / size[0], self.size[1] / size[1])
        left, top, right, bottom = self._around(clipped(box, *self.size))
        part = picture[top:bottom, left:right]
        missing = math.ceil((self.minimum - part.shape[0] * part.shape[1]) / self.side**2)
        return part if missing <= 0 else self._filled(part, missing)

    def _around(self, box: Box) -> tuple[int, int, int, int]:
        bounds = []
        for low, high, limit in zip(box[:2], box[2:], self.size, strict=True):
            slack = min(SLACK * self.side, (high - low) / 4)
            first = min(math.floor((low + slack) / self.side), limit // self.side - 1)
            last = max(math.ceil((high - slack) / self.side), first + 1)
            bounds.append((first * self.side, min(last * self.side, limit)))
        (left, right), (top, bottom) = bounds
        return left, top, right, bottom

    def _filled(self, part: Picture, missing: int) -> Picture:
        """With at least `missing` white squares more, along the shorter side."""
        down, across = (length // self.side for length in part.shape[:2])
        if across <= self.size[0] // self.side - math.ceil(missing / down):
            across += math.ceil(missing / down)
        else:
            down += math.ceil(missing / across)
        whole = np.full((down * self.side, across * self.side, 3), 255, dtype=np.uint8)
        whole[: part.shape[0], : part.shape[1]] = part
        return whole


def cells_of(processor: Any, inputs: Mapping[str, Any]) -> Cells | None:
    """Returns the grid of visual tokens over the one picture of some inputs; `None` if unknown.

    Args:
        processor: whose image processor has `patch_size` and `merge_size`, as Qwen's families'.
        inputs: what it made of a page.
    """
    grid = inputs.get("image_grid_thw")
    image = getattr(processor, "image_processor", None)
    patch, merge = getattr(image, "patch_size", None), getattr(image, "merge_size", None)
    if grid is None or len(grid) != 1 or not isinstance(patch, int) or not isinstance(merge, int):
        return None
    _, down, across = grid[0].tolist()
    minimum = 0
    with suppress(KeyError, TypeError, AttributeError):  # unknown
        minimum = int(image.size["shortest_edge"])  # type: ignore[union-attr]
    return Cells(patch * merge, (across * patch, down * patch), minimum)
