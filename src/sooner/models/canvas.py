"""Adapters whose new tokens are a picture's, or a clip's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..decoding.grid import Grid
from .base import Adapter


@dataclass(frozen=True)
class Sampling:
    """How a family draws by default.

    Attributes:
        temperature, top_k, top_p: of the warpers; `None` leaves one out.
        guidance: scale of classifier-free guidance; 1 is none.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    guidance: float = 1.0


class Canvas(Adapter):
    """An adapter that draws: its vocabulary holds codes, its tokens stand on a grid.

    Subclasses give `grid`, `pixels`, and `guided_inputs` where the family was trained for
    classifier-free guidance.
    """

    def __init__(self, model: Any, grid: Grid) -> None:
        super().__init__(model)
        self._grid = grid

    @property
    def grid(self) -> Grid:
        return self._grid

    @property
    def sampling(self) -> Sampling:
        """The checkpoint's own way of drawing, from its generation config."""
        config = self.model.generation_config
        return Sampling(
            temperature=config.temperature or 1.0,
            top_k=config.top_k or None,
            top_p=config.top_p if config.top_p not in (None, 1.0) else None,
            guidance=float(getattr(config, "guidance_scale", None) or 1.0),
        )

    @property
    def codebook(self) -> Tensor:
        """What each code stands for, `[codes, features]`."""
        raise NotImplementedError

    def pixels(self, tokens: Tensor) -> Tensor:
        """Decode whole spans, `[rows, grid.length]`.

        Returns:
            `[rows, frames, height, width, 3]`, 0 to 1, fp32.
        """
        raise NotImplementedError
