"""A loaded model that generates pictures or clips, and its decoding methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ... import miniatures
from ...errors import SoonerError, reason_of
from ...methods import Autoregressive, CoupledJacobi, Method
from ...models import Canvas
from ...models import canvas as make_canvas
from .settings import ImagineSettings

Kind = Literal["image", "video"]
LUMINA, LUMINA_SIZE = "lumina", (768, 768)


@dataclass(frozen=True)
class VideoTokenizer:
    """Turns the pixels of a clip into codes and back.

    Attributes:
        tokenizer: `encode` takes `[rows, 3, frames, height, width]` in -1..1 and gives codes
            `[rows, t, h, w]`; `decode` is the way back.
        height, width: pixels of a frame.
        group: frames that a latent frame after the first stands for.
        latents: latent frames of a whole clip.
        prefix: latent frames that a clip is continued from, by default.
        fps: frames a second of the clips that the model knows.
    """

    tokenizer: Any
    height: int
    width: int
    group: int
    latents: int
    prefix: int
    fps: float

    @property
    def prefix_frames(self) -> int:
        """Frames that a clip is continued from, by default."""
        return self.frames_of(self.prefix)

    def frames_of(self, latents: int) -> int:
        return 1 + (latents - 1) * self.group

    def latents_of(self, frames: int) -> int:
        """Returns the latent frames of `frames` given frames.

        Raises:
            SoonerError: frames that fill no whole latent frame, or leave nothing to draw.
        """
        latents, rest = divmod(frames - 1, self.group)
        if frames < 1 or rest or latents + 1 >= self.latents:
            known = [str(self.frames_of(count)) for count in range(1, self.latents)]
            raise SoonerError(
                f"{frames} given frames don't fill the model's latent frames; give one of "
                f"{', '.join(known)}"
            )
        return latents + 1


@dataclass(frozen=True)
class DrawingModel:
    """A model that generates pictures or clips; see `load_drawing_model`.

    Attributes:
        name: hub id or folder, as asked for; `miniature NAME` for a bundled one.
        model: in eval mode, on its device.
        processor: what makes prompts; `None` for video.
        video_tokenizer: turns frames into codes and back; `None` for pictures.
        dtype: as it was asked for.
        miniature: it ships with the package.
        folder, tokenizer: its folder or hub id, and the tokenizer as asked for, from which a
            record's fingerprint is computed.
        options: what else its canvas takes, such as Chameleon's `layout` and `decoder`.
    """

    name: str
    model: Any
    processor: Any = None
    video_tokenizer: VideoTokenizer | None = None
    dtype: str = "auto"
    miniature: bool = False
    folder: str = ""
    tokenizer: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def foreign(self, sources: Path | str) -> list[str]:
        """Returns notes on a prompt or clip that a miniature was not trained for, if it is one."""
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
        """Returns processed prompts: `input_ids [rows, width]`, padded, and their `attention_mask`.

        Args:
            size: height and width in pixels, for families whose prompt tells them.

        Raises:
            SoonerError: an empty prompt, a model that takes none, or a processor that refuses it.
        """
        if self.video_tokenizer is not None:
            raise SoonerError(f"'{self.name}' continues clips and takes no prompt; use --continue")
        if any(not prompt.strip() for prompt in prompts):
            raise SoonerError("the prompt is empty; say what is to be drawn")
        kind, options = self.model.config.model_type, dict[str, Any]()
        if self.options.get("layout") == LUMINA:  # the request that Lumina-mGPT was tuned on
            height, width = size or LUMINA_SIZE
            request = f"Generate an image of {width}x{height} according to the following prompt:\n"
            prompts = [request + prompt for prompt in prompts]
        if kind == "emu3":  # the size stands in the prompt, in codes
            options["return_for_image_generation"] = True
            if size is not None:
                options |= {"ratio": f"{size[1]}:{size[0]}", "image_area": size[0] * size[1]}
        try:
            if kind == "janus":  # a chat turn of the user, behind which the picture begins
                options["generation_mode"] = "image"
                if self.processor.chat_template is not None:
                    turns = [
                        [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
                        for prompt in prompts
                    ]
                    prompts = self.processor.apply_chat_template(turns, add_generation_prompt=True)
            return dict(self.processor(text=prompts, padding=True, return_tensors="pt", **options))
        except (ValueError, TypeError, AttributeError) as error:
            raise SoonerError(
                f"the model's processor refuses the prompt: {reason_of(error)}"
            ) from error

    @torch.no_grad()
    def clip_inputs(self, frames: Tensor) -> dict[str, Any]:
        """Returns the beginnings of clips as the model takes them.

        Args:
            frames: uint8 `[rows, frames, height, width, 3]` at the tokenizer's size.
        """
        assert self.video_tokenizer is not None
        pixels = frames.to(self.model.device).permute(0, 4, 1, 2, 3).float() / 127.5 - 1
        codes = self.video_tokenizer.tokenizer.encode(pixels)  # [rows, latents, h, w]
        return {"input_ids": codes.flatten(1)}


PICTURE, CLIP = 64, 128
"""Default Jacobi windows, in codes: those with which the paper reports its best results."""


def build_method(settings: ImagineSettings, canvas: Canvas) -> Method:
    """Returns the method that `settings` name.

    By default a GPU looks at a whole window in the time of one code. A processor does not, so there
    it is a quarter for pictures, whose rows come in pairs under guidance (of 8 to 128 codes, 16
    were the fastest by the clock, see docs/results/imagine.md), and shared by the rows of a batch.

    Raises:
        SoonerError: a window beyond what is left of the picture, or options the method refuses.
    """
    grid, window = canvas.grid, settings.jacobi_window
    if window is not None and window > grid.left:
        raise SoonerError(
            f"jacobi_window is {window}; only {grid.left} codes are left to draw, so use at most "
            f"{grid.left}"
        )
    if settings.method == "plain":
        return Autoregressive()
    if window is None:
        window = CLIP if grid.frames > 1 else PICTURE
        if canvas.device.type == "cpu":
            window = max(8, (window if grid.frames > 1 else window // 4) // settings.count)
    coupling = "independent" if settings.method == "sjd" else settings.coupling
    values = {"init": settings.init, "coupling": coupling, "strength": settings.strength}
    options: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    return CoupledJacobi(jacobi_window=min(window, grid.left), **options)
