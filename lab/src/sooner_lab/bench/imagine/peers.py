"""The baseline without this library: the model's own `generate`, sampled or greedy."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from sooner.models import Canvas
from sooner.models.hooks import ForwardHooks

from .arms import EnoughError
from .subjects import Subject

MODES: dict[str, dict[str, Any]] = {"janus": {"generation_mode": "image"}}
"""Options by which a family's `generate` draws; other families continue their prompt."""


class Recorder(LogitsProcessor):
    """Keeps each step's raw logits `[rows, vocab]`, and ends the run after `limit` of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.logits: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.logits.append(scores.float().clone())
        if len(self.logits) >= self.limit:
            raise EnoughError
        return scores


def sampled(subject: Subject, number: int, seed: int) -> tuple[Tensor, float]:
    """Draw one prompt with the checkpoint's own sampling.

    Returns:
        The whole span `[1, length]`, and the seconds from the first token to the last.
    """
    canvas, inputs = subject.canvas, subject.prepare([number])
    starts: list[float] = []
    # `generate` tells no times; the decoder's first forward is the prefill.
    devices = [canvas.device] if canvas.device.type == "cuda" else []
    with ForwardHooks() as hooks, torch.random.fork_rng(devices=devices):
        hooks.after(canvas.decoder, lambda *_: starts.append(_clock(canvas)))
        torch.manual_seed(seed)  # `generate` samples from the global generator
        made = _generate(canvas, inputs, do_sample=True)
    seconds = _clock(canvas) - starts[0]
    return made[:, -canvas.grid.length :].cpu().clone(), seconds  # no longer an inference tensor


def greedy(subject: Subject, number: int, limit: int) -> tuple[list[int], list[Tensor]]:
    """The first `limit` tokens of greedy decoding and the scores they were chosen from."""
    canvas = subject.canvas
    recorder = Recorder(limit)
    processors = LogitsProcessorList([recorder])
    with contextlib.suppress(EnoughError):
        _generate(canvas, subject.prepare([number]), do_sample=False, logits_processor=processors)
    scores = [_guided(logits, canvas.sampling.guidance) for logits in recorder.logits]
    return [int(row.argmax()) for row in scores], scores


def _generate(canvas: Canvas, inputs: dict[str, Any], **options: Any) -> Tensor:
    mode = MODES.get(canvas.config.model_type)
    if mode is None:
        options |= {"max_new_tokens": canvas.grid.left, "min_new_tokens": canvas.grid.left}
    else:
        # At 1 HF skips guidance but not the doubled batch, and fails; a hair above is the same.
        options |= {**mode, "guidance_scale": max(canvas.sampling.guidance, 1 + 1e-6)}
    with torch.inference_mode():
        return canvas.model.generate(**inputs, **options)


def _guided(logits: Tensor, scale: float) -> Tensor:
    """One row's scores, `[vocab]`; a doubled batch has the unconditional row second."""
    if logits.shape[0] == 1:
        return logits[0]
    return logits[1] + scale * (logits[0] - logits[1])


def _clock(canvas: Canvas) -> float:
    if canvas.device.type == "cuda":
        torch.cuda.synchronize(canvas.device)
    return time.perf_counter()
