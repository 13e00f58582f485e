"""A video tokenizer (frames to codes and back) with the sizes that its model was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...errors import SoonerError
from ...models.cosmos_ar.tokenizer import SPATIAL, TEMPORAL, PublishedTokenizer

PREFIX_FRAMES = 9
"""Frames that Cosmos continues by default; the miniature does as it does."""

PUBLISHED_FPS = 25.0
JIT = ("encoder.jit", "decoder.jit")


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
    def frames(self) -> int:
        """Returns the frames of a whole clip."""
        return self.frames_of(self.latents)

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


def load_video_tokenizer(
    model: Any, folder: Path, name: str | None, device: torch.device, trust_remote_code: bool
) -> VideoTokenizer:
    """Returns the tokenizer of a Cosmos model.

    Args:
        folder: of the model, in or beside which the tokenizer is looked for.
        name: folder of the tokenizer, if it is elsewhere.
        trust_remote_code: run the code in TorchScript files.

    Raises:
        SoonerError: none there; TorchScript that is not trusted, or sizes that are not the model's.
    """
    places = [folder, folder / "tokenizer", folder.parent / "tokenizer"]
    for place in places if name is None else [Path(name)]:
        is_published = all((place / file).is_file() for file in JIT)
        if is_published or (place != folder and (place / "config.json").is_file()):
            break
    else:
        raise SoonerError(
            f"'{name or folder}' holds no video tokenizer; give a folder with {' and '.join(JIT)} "
            "with --tokenizer"
        )
    prefix = PREFIX_FRAMES - 1
    if is_published:
        if not trust_remote_code:
            raise SoonerError(
                f"'{place}' holds TorchScript, which runs the code inside it; add "
                "--trust-remote-code if you trust these files"
            )
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        encoder, decoder = (place / file for file in JIT)
        published = PublishedTokenizer(encoder, decoder, device=device, dtype=dtype)
        latents, height, width = model.config.latent_shape
        return VideoTokenizer(
            published, height * SPATIAL, width * SPATIAL, TEMPORAL, latents,
            prefix=1 + prefix // TEMPORAL, fps=PUBLISHED_FPS,
        )  # fmt: skip
    from ...models.clip_tokenizer import MotionTokenizer

    tokenizer: Any = MotionTokenizer.from_pretrained(place, dtype=torch.float32)
    tokenizer = tokenizer.to(device).eval()
    config, latents = tokenizer.config, model.config.latent_shape[0]
    video_tokenizer = VideoTokenizer(
        tokenizer, config.height, config.width, config.group, latents,
        prefix=1 + prefix // config.group, fps=config.fps,
    )  # fmt: skip
    box = config.latent_shape(video_tokenizer.frames)
    if box != tuple(model.config.latent_shape) or config.codes != model.config.vocab_size:
        raise SoonerError(
            f"tokenizer '{place}' makes {box} of {config.codes} codes, the model draws "
            f"{tuple(model.config.latent_shape)} of {model.config.vocab_size}; give its own"
        )
    return video_tokenizer
