"""A loaded model that generates pictures or clips, and its decoding methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ... import miniatures
from ...errors import SoonerError
from ...methods import Autoregressive, CoupledJacobi, Method
from ...models import Canvas
from ...models import canvas as make_canvas
from .prompting import build_prompt
from .settings import ImagineSettings
from .video_tokenizer import VideoTokenizer

Kind = Literal["image", "video"]


@dataclass(frozen=True)
class DrawingModel:
    """A model that generates pictures or clips; see `load_drawing_model`.

    Attributes:
        name: hub id or folder, as asked for; `miniature NAME` for a bundled one.
        kind: `"image"` draws pictures from prompts, `"video"` continues clips.
        model: in eval mode, on its device.
        processor: what makes prompts; `None` for video.
        video_tokenizer: turns frames into codes and back; `None` for pictures.
        dtype: as it was asked for.
        device: where the model is.
        miniature: it ships with the package.
        folder: its folder or hub id, from which a record's fingerprint is computed.
        options: what else its canvas takes, such as Chameleon's `layout` and `decoder`.
    """

    name: str
    kind: Kind
    model: Any
    processor: Any = None
    video_tokenizer: VideoTokenizer | None = None
    dtype: str = "auto"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    miniature: bool = False
    folder: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def foreign(self, sources: Path | str) -> list[str]:
        """Returns notes for a prompt or clip that a miniature was not trained for; empty
        otherwise.
        """
        name = self.name.removeprefix("miniature ")
        return miniatures.find(name).foreign(sources) if self.miniature else []

    @property
    def model_type(self) -> str:
        return str(self.model.config.model_type)

    def canvas(self, size: tuple[int, int] | None = None, prefix: int | None = None) -> Canvas:
        """Returns the adapter by which the model draws.

        Args:
            size: height and width of a picture in pixels, for families that draw in several.
            prefix: frames that a clip is continued from.

        Raises:
            SoonerError: a size that the model can't make; frames that don't fit.
        """
        if self.video_tokenizer is None:
            height, width = size or (None, None)
            return make_canvas(self.model, height=height, width=width, **self.options)
        if size is not None:
            side = f"{self.video_tokenizer.height}x{self.video_tokenizer.width}"
            raise SoonerError(
                f"size {size[0]}x{size[1]}: '{self.name}' makes clips of {side} only; "
                "leave the size out"
            )
        latents = (
            self.video_tokenizer.prefix
            if prefix is None
            else self.video_tokenizer.latents_of(prefix)
        )
        options: dict[str, Any] = {"prefix": latents, "tokenizer": self.video_tokenizer.tokenizer}
        return make_canvas(self.model, **options)

    def prompt_inputs(
        self, prompts: list[str], size: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        """Prompts as the model takes them, padded to one length.

        Raises:
            SoonerError: an empty prompt, or a model that takes none.
        """
        if self.video_tokenizer is not None:
            raise SoonerError(f"'{self.name}' continues clips and takes no prompt; use --continue")
        if any(not prompt.strip() for prompt in prompts):
            raise SoonerError("the prompt is empty; say what is to be drawn")
        layout = self.options.get("layout")
        return build_prompt(self.model_type, self.processor, prompts, size, layout)

    @torch.no_grad()
    def clip_inputs(self, frames: Tensor) -> dict[str, Any]:
        """Returns the beginnings of clips as the model takes them.

        Args:
            frames: uint8 `[rows, frames, height, width, 3]` at the video_tokenizer' size.

        Raises:
            SoonerError: a model that draws pictures, or frames that don't fit it.
        """
        if self.video_tokenizer is None:
            raise SoonerError(f"'{self.name}' draws pictures and can't continue a clip")
        latents = self.video_tokenizer.latents_of(frames.shape[1])
        pixels = frames.to(self.device).permute(0, 4, 1, 2, 3).float() / 127.5 - 1
        codes = self.video_tokenizer.tokenizer.encode(pixels)  # [rows, latents, h, w]
        assert codes.shape[1] == latents, (codes.shape, latents)
        return {"input_ids": codes.flatten(1)}


PICTURE, CLIP = 64, 128

"""Default Jacobi windows, in codes: those with which the paper reports its best results."""


def build_method(settings: ImagineSettings, canvas: Canvas) -> Method:
    """Returns the method that `settings` name.

    Raises:
        SoonerError: a window beyond what is left of the picture, or options the method refuses.
    """
    grid = canvas.grid
    if settings.jacobi_window is not None and settings.jacobi_window > grid.left:
        raise SoonerError(
            f"jacobi_window is {settings.jacobi_window}; only {grid.left} codes are left to draw, "
            f"so use at most {grid.left}"
        )
    window = settings.jacobi_window or default_jacobi_window(canvas, settings.count)
    if settings.method == "plain":
        return Autoregressive()
    coupling = "independent" if settings.method == "sjd" else settings.coupling
    values = {"init": settings.init, "coupling": coupling, "strength": settings.strength}
    options: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    return CoupledJacobi(jacobi_window=min(window, grid.left), **options)


def default_jacobi_window(canvas: Canvas, count: int) -> int:
    """Returns places to draft ahead.

    A GPU looks at a whole window in the time of one place. A processor does not, so there it is a
    quarter for pictures, whose rows come in pairs under guidance (of 8 to 128 places, 16 were the
    fastest by the clock, see docs/results/imagine.md), and shared by the rows of a batch.
    """
    is_clip = canvas.grid.frames > 1
    window = CLIP if is_clip else PICTURE
    if canvas.device.type != "cpu":
        return window
    return max(8, (window if is_clip else window // 4) // count)
