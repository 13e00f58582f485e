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
from ..model_types import error_line
from .settings import ImagineSettings
from .video_tokenizer import VideoTokenizer

Kind = Literal["image", "video"]
LUMINA, LUMINA_SIZE = ("lumina", "lumina2"), (768, 768)


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

    def canvas(self, size: tuple[int, int] | None = None, prefix: int | None = None) -> Canvas:
        """Returns the adapter by which the model draws.

        Args:
            size: height and width of a picture in pixels, for families that draw in several.
            prefix: frames that a clip is continued from.

        Raises:
            SoonerError: a size that the model can't make; frames that don't fit.
        """
        if (clips := self.video_tokenizer) is None:
            height, width = size or (None, None)
            return make_canvas(self.model, height=height, width=width, **self.options)
        if size is not None:
            raise SoonerError(
                f"size {size[0]}x{size[1]}: '{self.name}' makes clips of "
                f"{clips.height}x{clips.width} only; leave the size out"
            )
        latents = clips.prefix if prefix is None else clips.latents_of(prefix)
        return make_canvas(self.model, prefix=latents, tokenizer=clips.tokenizer)

    def prompt_inputs(
        self, prompts: list[str], size: tuple[int, int] | None = None
    ) -> dict[str, Any]:
        """Returns prompts as the model takes them, padded to one length.

        Raises:
            SoonerError: an empty prompt, or a model that takes none.
        """
        if self.video_tokenizer is not None:
            raise SoonerError(f"'{self.name}' continues clips and takes no prompt; use --continue")
        if any(not prompt.strip() for prompt in prompts):
            raise SoonerError("the prompt is empty; say what is to be drawn")
        layout = self.options.get("layout")
        kind = str(self.model.config.model_type)
        return build_prompt(kind, self.processor, prompts, size, layout)

    @torch.no_grad()
    def clip_inputs(self, frames: Tensor) -> dict[str, Any]:
        """Returns the beginnings of clips as the model takes them.

        Args:
            frames: uint8 `[rows, frames, height, width, 3]` at the tokenizer's size.

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


def build_prompt(
    model_type: str,
    processor: Any,
    prompts: list[str],
    size: tuple[int, int] | None = None,
    layout: str | None = None,
) -> dict[str, Any]:
    """Returns processed prompts: `input_ids [rows, width]`, padded, and their `attention_mask`.

    Args:
        size: height and width in pixels, for families whose prompt tells them.
        layout: how a Chameleon writes pictures as tokens, see `ChameleonCanvas`.

    Raises:
        SoonerError: the processor can't; says why.
    """
    options: dict[str, Any] = {}
    if layout in LUMINA:  # the request that Lumina-mGPT was tuned on; width comes first in it
        height, width = size or LUMINA_SIZE
        request = f"Generate an image of {width}x{height} according to the following prompt:\n"
        prompts = [request + prompt for prompt in prompts]
    if model_type == "emu3":  # the size stands in the prompt, in codes
        options["return_for_image_generation"] = True
        if size is not None:
            options |= {"ratio": f"{size[1]}:{size[0]}", "image_area": size[0] * size[1]}
    try:
        if model_type == "janus":  # a chat turn of the user, behind which the picture begins
            options["generation_mode"] = "image"
            if processor.chat_template is not None:
                prompts = [_chat(processor, prompt) for prompt in prompts]
        return dict(processor(text=prompts, padding=True, return_tensors="pt", **options))
    except (ValueError, TypeError, AttributeError) as error:
        raise SoonerError(
            f"the model's processor refuses the prompt: {error_line(error)}"
        ) from error


def _chat(processor: Any, prompt: str) -> str:
    turn = {"role": "user", "content": [{"type": "text", "text": prompt}]}
    return str(processor.apply_chat_template([turn], add_generation_prompt=True))
