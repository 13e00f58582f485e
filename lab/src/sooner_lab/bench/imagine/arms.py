"""The contenders of `sooner bench imagine`: our methods at a window, and the model's `generate`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from sooner.drawing import draw
from sooner.engine.stats.run import EXACT
from sooner.methods import Autoregressive, CoupledJacobi, Method
from sooner.models import Canvas
from sooner.models.hooks import ForwardHooks

from ..run import Arm, TimedRun
from .settings import ImagineBenchSettings
from .subjects import Subject

WARM = 8
"""Tokens of a warm-up: every shape of a round has been seen by then."""
MODES: dict[str, dict[str, Any]] = {"janus": {"generation_mode": "image"}}
"""Options by which a family's `generate` draws; other families continue their prompt."""
COUPLINGS = {
    "sjd": {"coupling": "independent"},
    "maximal": {"coupling": "maximal"},
    "gumbel": {"coupling": "gumbel"},
    "gumbel-noise": {"coupling": "gumbel", "verify": "noise"},
}


@dataclass(frozen=True)
class Contender:
    """One arm at one window.

    Attributes:
        arm: its name among `settings.ARMS`.
        window: places drafted ahead; `None` where nothing is drafted.
        init: first draft of a place, likewise.
        method: how we decode; `None` is the model's own `generate`.
    """

    arm: str
    window: int | None = None
    init: str | None = None
    method: Method | None = None

    def timed(self, subject: Subject, seed: int) -> Arm:
        """Return the arm that draws prompt number `index` from the prompt to the pixels."""

        def run(index: int) -> TimedRun:
            start, stats = time.perf_counter(), None
            if self.method is None:
                tokens, seconds = sample_by_generate(subject, index, seed + index)
            else:
                drawing = draw(
                    subject.canvas, subject.prepare([index]), self.method, seed=seed + index
                )
                tokens, stats = drawing.tokens, drawing.stats
                seconds = stats.decode_seconds
            with torch.no_grad():
                subject.canvas.pixels(tokens)  # a user waits for them too
            count = subject.new - 1 if stats is None else stats.decode_tokens
            output = tokens[:, -subject.new :].tolist()
            return TimedRun(output, seconds, time.perf_counter() - start, count, stats)

        def warm_up() -> None:
            if self.method is None:
                greedy_by_generate(subject, 0, WARM)
            else:
                draw_beginning(subject, 0, self.method, seed, WARM)

        name = self.arm if self.window is None else f"{self.arm} L={self.window} from {self.init}"
        return Arm(name, run, EXACT if self.method is None else self.method.mode, warm_up)


def starts(subject: Subject) -> tuple[str, str]:
    """First drafts of a place that every arm is measured from: a random code, as SJD was published
    with (Teng et al. 2024), and the neighbour that resembles it, the default of `CoupledJacobi`."""
    return "random", "above" if subject.canvas.grid.frames == 1 else "previous-frame"


def contenders(subject: Subject, settings: ImagineBenchSettings) -> Iterator[Contender]:
    """Yield every arm from every start at every window, plain first."""
    for arm in settings.arms:
        if arm in ("plain", "hf"):
            yield Contender(arm, method=Autoregressive() if arm == "plain" else None)
            continue
        for init in starts(subject):
            for window in settings.jacobi_windows:
                yield Contender(arm, window, init, method_of(arm, window, init))


def method_of(arm: str, window: int, init: str) -> Method:
    """Return the method of an arm that drafts."""
    return CoupledJacobi(window, init=init, **{"verify": "ratio", **COUPLINGS[arm]})  # type: ignore[arg-type]


class EnoughError(Exception):
    """Ends a run that has drawn all that was wanted of it."""


def draw_beginning(
    subject: Subject, number: int, method: Method, seed: int, tokens: int, **options: Any
) -> list[int]:
    """The first `tokens` new tokens of one drawing, at the cost of no more than them."""
    output_ids: list[int] = []

    def keep(row: int, new: list[int], drafted: int) -> None:
        output_ids.extend(new)
        if len(output_ids) >= tokens:
            raise EnoughError

    inputs = subject.prepare([number])
    with contextlib.suppress(EnoughError):
        draw(subject.canvas, inputs, method, seed=seed, on_tokens=keep, **options)
    return output_ids[:tokens]


class LogitsRecorder(LogitsProcessor):
    """Keeps each step's raw logits `[rows, vocab]`, and ends the run after `limit` of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.logits: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.logits.append(scores.float().clone())
        if len(self.logits) >= self.limit:
            raise EnoughError
        return scores


def sample_by_generate(subject: Subject, number: int, seed: int) -> tuple[Tensor, float]:
    """Draw one prompt with the checkpoint's own sampling.

    Returns:
        The whole span `[1, length]`, and the seconds from the first token to the last.
    """
    canvas, inputs = subject.canvas, subject.prepare([number])
    marks: list[float] = []

    def mark(*_: Any) -> None:
        if canvas.device.type == "cuda":
            torch.cuda.synchronize(canvas.device)
        marks.append(time.perf_counter())

    # `generate` tells no times; the decoder's first forward is the prefill.
    devices = [canvas.device] if canvas.device.type == "cuda" else []
    with ForwardHooks() as hooks, torch.random.fork_rng(devices=devices):
        hooks.after(canvas.decoder, mark)
        torch.manual_seed(seed)  # `generate` samples from the global generator
        made = _generate(canvas, inputs, do_sample=True)
    mark()
    # The copy is no inference tensor.
    return made[:, -canvas.grid.length :].cpu().clone(), marks[-1] - marks[0]


def greedy_by_generate(subject: Subject, number: int, limit: int) -> tuple[list[int], list[Tensor]]:
    """The first `limit` tokens of greedy decoding and the scores they were chosen from."""
    canvas, recorder = subject.canvas, LogitsRecorder(limit)
    options: dict[str, Any] = {"logits_processor": LogitsProcessorList([recorder])}
    with contextlib.suppress(EnoughError):
        _generate(canvas, subject.prepare([number]), do_sample=False, **options)
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
