"""How a page is parsed with less memory, after memory ran out."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from PIL import Image

from ...documents import Page
from ...documents.page import Picture
from ...errors import MemoryRanOutError, is_out_of_memory

Made = TypeVar("Made")

SCALES = (0.7, 0.5, 0.35)
"""Sides of smaller pictures, as shares: each has half of the pixels of the one before it."""


@dataclass(frozen=True)
class Effort:
    """How much of a page is held at a time.

    Attributes:
        regions: read each region on its own first, where that is asked for. Without, the text is
            the same at acceptance threshold 1.
        scale: of the sides of the page's picture. Below 1 the model reads another picture, so the
            result is *approximate*.
    """

    regions: bool = True
    scale: float = 1.0

    def picture(self, page: Page) -> Picture:
        """Returns the page's picture for the model, `[height, width, 3]` uint8."""
        if self.scale == 1:
            return page.picture
        whole = Image.fromarray(page.picture)
        return np.array(whole.resize(self._size(page), Image.Resampling.LANCZOS))

    def _size(self, page: Page) -> tuple[int, int]:
        width, height = (max(round(side * self.scale), 1) for side in page.size)
        return width, height

    def report(self, page: Page) -> list[str]:
        """Returns notes for the page's record on what was reduced."""
        notes = [] if self.regions else ["memory ran out: regions were not read on their own"]
        if self.scale < 1:
            width, height = self._size(page)
            notes.append(f"memory ran out: the page was read at {width} x {height} px")
        return notes


class NotSmallerError(Exception):
    """The processor makes as many tokens of a smaller picture: it would not help."""


def efforts(has_regions: bool) -> Iterator[Effort]:
    """The usual one, then what takes ever less memory; what changes no text comes first.

    Args:
        has_regions: the usual one reads regions on their own, which can be left out.
    """
    yield Effort()
    if has_regions:
        yield Effort(regions=False)
    for scale in SCALES:
        yield Effort(not has_regions, scale)


async def with_less(make: Callable[[Effort], Awaitable[Made]], has_regions: bool) -> Made:
    """Make something, with less and less as long as memory runs out.

    Raises:
        MemoryRanOutError: the least was too much.
        Exception: what `make` raised besides.
    """
    reason, scale = "", 1.0
    for effort in efforts(has_regions):
        try:
            return await make(effort)
        except NotSmallerError:
            break
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason, scale = " ".join(str(error).split())[:200] or type(error).__name__, effort.scale
        release()  # outside of the handler: the error's frames held what was allocated
    smaller = "" if scale == 1 else f", even at {scale:.0%} of the page's width"
    raise MemoryRanOutError(
        f"memory ran out{smaller} ({reason}); lower --dpi or --max-new-tokens, or use a smaller "
        "model"
    )


def release() -> None:
    """Give back what nothing refers to any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
