"""The frames of a file that a clip is continued from, at the model's size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ...errors import SoonerError
from ..frames import Progress, read
from ..video import probe
from .easel import Easel
from .settings import ImagineSettings


def read_start(
    path: Path | str,
    easel: Easel,
    settings: ImagineSettings,
    on_decode: Progress | None = None,
) -> tuple[np.ndarray, dict[str, Any]]:
    """The given frames, uint8 `[frames, height, width, 3]`, and what the record says of them.

    Raises:
        SoonerError: not a video, or too few frames.
    """
    lens = easel.lens
    assert lens is not None, "only models that continue clips come here"
    count = settings.given or lens.given_frames
    info = probe(path)
    first = settings.start if settings.start >= 0 else info.frames + settings.start
    if first < 0 or first + count > info.frames:
        raise SoonerError(
            f"'{path}' has {info.frames} frames; {count} from frame {settings.start} on are not "
            f"there, change --given or --start"
        )
    frames = read(info, lambda _: list(range(first, first + count)), on_decode)
    told = {
        "frames": {"first": first, "count": count},
        "video": {"frames": info.frames, "fps": info.fps, "width": info.width,
                  "height": info.height},
        "notes": [info.damage] if info.damage else [],
    }  # fmt: skip
    return fit(frames.pixels, lens.height, lens.width), told


def fit(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Crop the middle to the aspect of `height` x `width`, then scale; uint8 in and out.

    Shrinking takes means over boxes, which for whole multiples loses nothing that the model
    could see.
    """
    frames = torch.from_numpy(pixels).permute(0, 3, 1, 2).float()  # [frames, 3, h, w]
    tall, wide = frames.shape[2:]
    kept_tall = min(tall, round(wide * height / width))
    kept_wide = min(wide, round(tall * width / height))
    top, left = (tall - kept_tall) // 2, (wide - kept_wide) // 2
    frames = frames[:, :, top : top + kept_tall, left : left + kept_wide]
    mode = "area" if kept_tall >= height and kept_wide >= width else "bilinear"
    scaled = functional.interpolate(frames, (height, width), mode=mode)
    return scaled.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
