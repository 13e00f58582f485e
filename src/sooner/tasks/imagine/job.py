"""Pictures from a prompt, and clips continued: one input in, one record with pixels out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from ...errors import SoonerError
from ...models import Canvas
from ...provenance import versions
from ..frames import read
from ..identity import settings_hash, sha256
from ..video import probe
from .batch import (
    DrawCallbacks,
    DrawingProgress,
    DrawJob,
    compare_plain,
    draw_batch,
    plain_for,
    warm_up,
)
from .drawing_model import DrawingModel, build_method
from .loading import tokenizer_of
from .settings import ImagineSettings, fresh_seed


def fit(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """Crop the middle to the aspect of `height` x `width`, then scale; uint8 in and out.

    Shrinking takes means over boxes, which for whole multiples loses nothing models could see.
    """
    is_larger = pixels.shape[1] >= height and pixels.shape[2] >= width
    way = Image.Resampling.BOX if is_larger else Image.Resampling.BILINEAR
    frames = (ImageOps.fit(Image.fromarray(frame), (width, height), way) for frame in pixels)
    return np.stack([np.asarray(frame) for frame in frames])


@dataclass(frozen=True)
class ImagineResult:
    """Pictures or clips that were made, and their record.

    Attributes:
        record: ready for JSON: what was asked, counts, speeds, times by phase, versions.
        pixels: uint8 `[count, frames, height, width, 3]`.
        fps: frames a second of a clip.
        prefix_frames: frames of a clip that the file gave, as the tokenizer sees them.
    """

    record: dict[str, Any]
    pixels: np.ndarray
    fps: float | None = None
    prefix_frames: int = 0


def imagine(
    prompt: str, drawing_model: DrawingModel, settings: ImagineSettings | None = None,
    callbacks: DrawCallbacks | None = None,
) -> ImagineResult:  # fmt: skip
    """Draw `settings.count` pictures of a prompt, in one batch.

    What picture `i` looks like follows from the seed, the count, `i` and the other settings.

    Raises:
        SoonerError: the request can't be served; one line.
    """
    settings, callbacks = settings or ImagineSettings(), callbacks or DrawCallbacks()
    canvas = drawing_model.canvas(settings.size)
    inputs = drawing_model.prompt_inputs([prompt], settings.size)
    details = {
        "prompt": prompt,
        "prompt_tokens": int(inputs["input_ids"].shape[1]),
        "notes": drawing_model.foreign(prompt),
    }
    return _make(drawing_model, canvas, inputs, settings, callbacks, details)


def continue_clip(
    path: Path | str, drawing_model: DrawingModel, settings: ImagineSettings | None = None,
    callbacks: DrawCallbacks | None = None,
) -> ImagineResult:  # fmt: skip
    """Continue a clip from its first frames (or from `settings.start` on).

    The given frames are scaled and cropped to the model's size and come back as its tokenizer
    sees them, so that nothing jumps where drawing begins.

    Raises:
        SoonerError: the file or the request can't be served; one line.
    """
    settings, callbacks = settings or ImagineSettings(), callbacks or DrawCallbacks()
    canvas = drawing_model.canvas(settings.size, settings.given)
    began, tokenizer = time.perf_counter(), drawing_model.video_tokenizer
    if tokenizer is None:
        raise SoonerError(f"'{drawing_model.name}' draws pictures and can't continue a clip")
    count, info = settings.given or tokenizer.prefix_frames, probe(path)
    first = settings.start if settings.start >= 0 else info.frames + settings.start
    if first < 0 or first + count > info.frames:
        raise SoonerError(
            f"'{path}' has {info.frames} frames; {count} from frame {settings.start} on are not "
            f"there, change --given or --start"
        )
    frames = read(info, lambda _: list(range(first, first + count)), callbacks.on_decode)
    info = frames.info
    details = {
        "file": str(path), "input_hash": sha256(path), "frames": {"first": first, "count": count},
        "video": {name: getattr(info, name) for name in ("frames", "fps", "width", "height")},
        "notes": [*drawing_model.foreign(Path(path)), *([info.damage] if info.damage else [])],
    }  # fmt: skip
    callbacks.on_stage("process")
    pixels = fit(frames.pixels, tokenizer.height, tokenizer.width)
    inputs = drawing_model.clip_inputs(torch.from_numpy(pixels)[None])
    seconds = {"video": time.perf_counter() - began}
    return _make(drawing_model, canvas, inputs, settings, callbacks, details, seconds)


def _make(
    drawing_model: DrawingModel, canvas: Canvas, inputs: Mapping[str, Any],
    settings: ImagineSettings, callbacks: DrawCallbacks, details: dict[str, Any],
    seconds: Mapping[str, float] | None = None,
) -> ImagineResult:  # fmt: skip
    seed = fresh_seed() if settings.seed is None else settings.seed
    work, method = DrawJob(canvas, inputs, settings, seed), build_method(settings, canvas)
    callbacks.on_canvas(canvas)
    if settings.compare:
        callbacks.on_stage("warm-up")
        warm_up(work, method, plain_for(work, method))
    record = {
        **details, "model": drawing_model.name, "method": settings.method, "mode": method.mode,
        "jacobi_window": getattr(method, "jacobi_window", None),
        "coupling": getattr(method, "coupling", None), "seed": seed, "count": settings.count,
        "settings_hash": settings_hash(
            settings, drawing_model.folder,
            tokenizer_of(drawing_model.folder, drawing_model.tokenizer), drawing_model.dtype,
            drawing_model.options.get("layout"),
        ),
        "device": str(canvas.device), "dtype": str(canvas.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(), "versions": versions(),
    }  # fmt: skip
    progress = DrawingProgress(work, callbacks.on_progress)
    tokenizer, fps, prefix = drawing_model.video_tokenizer, None, 0
    if tokenizer is not None:
        fps, prefix = tokenizer.fps, tokenizer.frames_of(canvas.grid.prefix // canvas.grid.frame)
    callbacks.on_stage("draw")
    drawing = draw_batch(work, method, progress)
    callbacks.on_stage("pixels")
    start = time.perf_counter()
    pixels = _pixels(canvas, drawing.tokens)
    stats, sampling = drawing.stats, drawing.sampling
    names = ("temperature", "top_k", "top_p", "guidance")
    record |= {
        "mode": stats.mode,
        "tokens": stats.tokens,
        "nfe": stats.nfe,
        # Plain decoding makes one forward a code, whatever the codes are.
        "step_compression": canvas.grid.left / stats.nfe,
        "tokens_per_second": stats.tokens_per_second,
        "acceptance": stats.mean_acceptance_length,
        "acceptance_rate": stats.acceptance_rate,
        "sampling": {name: getattr(sampling, name) for name in names},
        "decisions": stats.notes,
        "seconds": {**stats.seconds, "pixels": time.perf_counter() - start, **(seconds or {})},
    }
    if settings.compare:
        callbacks.on_stage("compare")
        record |= compare_plain(work, drawing, method, callbacks.on_progress)
    return ImagineResult(record, pixels, fps, prefix)


@torch.inference_mode()
def _pixels(canvas: Canvas, tokens: Tensor) -> np.ndarray:
    """Returns pictures of codes, 0 to 255."""
    return canvas.pixels(tokens).mul(255).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
