"""How fast each arm draws, behind a greedy parity gate.

Sampled drawings can't be compared token by token, so the gate is greedy: plain decoding and Jacobi
iteration must say what the model's own `generate` says. Canvas tests held the sampled distribution
against a known law (docs/results/canvas.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import harmonic_mean, median
from typing import Any

import torch
from torch import Tensor

from sooner.drawing import draw
from sooner.methods import Autoregressive, CoupledJacobi
from sooner.parity import Parity, compare

from ..run import Arm, ArmSamples, Progress, TimedRun, row
from . import peers
from .arms import ImagineContender, contender, contenders, draw_beginning, draw_rows, starts
from .settings import ImagineBenchSettings
from .subjects import Subject

WARM = 8
"""Tokens of a warm-up: every shape of a round has been seen by then."""


def measure(subject: Subject, settings: ImagineBenchSettings, progress: Progress) -> dict[str, Any]:
    """Time every contender on the same prompts and seeds, in turns.

    Returns:
        `arms`, one row of figures each; `parity`, the gate's verdicts; `batch`.
    """
    progress(f"{subject.kind}: parity gate")
    verdicts = gate(subject, settings)
    measured = [
        ArmSamples(
            Arm(arm.name, _runner(subject, arm, settings.seed), arm.mode),
            [[] for _ in range(settings.samples)],
            [verdicts["plain" if arm.jacobi_window is None else "jacobi"]],
        )
        for arm in contenders(subject, settings)
    ]
    _warm_up(subject, settings, progress)
    for index in range(settings.samples):
        for arm in measured:
            progress(f"{subject.kind} {index + 1}/{settings.samples}: {arm.arm.name}")
            arm.samples[index].append(arm.arm.run(index))
    return {
        "parity": {name: verdict.as_dict() for name, verdict in verdicts.items()},
        "arms": rows(subject, settings, measured),
    }


def gate(subject: Subject, settings: ImagineBenchSettings) -> dict[str, Parity]:
    """Greedy plain decoding and greedy Jacobi iteration against the model's own `generate`."""
    tokens, scores = peers.greedy(subject, 0, min(settings.gate, subject.new))
    methods = {"plain": Autoregressive(), "jacobi": CoupledJacobi(max(settings.jacobi_windows))}
    verdicts = {}
    for name, method in methods.items():
        output_ids = draw_beginning(subject, 0, method, settings.seed, len(tokens), do_sample=False)
        verdicts[name] = compare(tokens, output_ids, scores)
    return verdicts


def rows(
    subject: Subject, settings: ImagineBenchSettings, measured: list[ArmSamples]
) -> list[dict[str, Any]]:
    """The figures of each arm; `nfe` is the mean over drawings, `nfe_reduction` plain's over it."""
    plain = next(arm for arm in measured if arm.arm.name == "plain")
    result = []
    for arm, what in zip(measured, contenders(subject, settings), strict=True):
        figures = row(arm, plain)
        figures |= {"method": what.arm, "kind": subject.kind, "window": what.jacobi_window}
        figures["init"] = what.init
        nfe = [sample.stats.nfe if sample.stats else subject.new for sample in _runs(arm)]
        figures |= {"nfe": sum(nfe) / len(nfe), "nfe_of_samples": nfe, "drawings": len(nfe)}
        figures["nfe_reduction"] = subject.new / figures["nfe"]
        if "decode_seconds" in figures:  # of one drawing, not of all
            figures["decode_seconds"] /= len(nfe)
            figures["e2e_seconds"] /= len(nfe)
        result.append(figures)
    return result


def batch_figures(
    subject: Subject, settings: ImagineBenchSettings, progress: Progress
) -> dict[str, Any]:
    """Tokens a second of a ragged batch against those of its drawings one by one.

    At the smallest window, which leaves a batch the most room: on a CPU a step soon costs as much
    as its tokens.
    """
    window = min(settings.jacobi_windows)
    method = contender("gumbel", window, starts(subject)[-1], settings).method
    assert method is not None
    rows = range(settings.batch)
    draw_beginning(subject, 0, method, settings.seed, WARM)
    alone, together = [], []
    for repeat in range(2):
        progress(f"{subject.kind}: batch of {settings.batch}, {repeat + 1}/2")
        seed = settings.seed + repeat
        drawn = [draw_rows(subject, [row], method, seed)[0] for row in rows]
        alone.append(harmonic_mean([drawing.stats.tokens_per_second for drawing in drawn]))
        together.append(draw_rows(subject, rows, method, seed)[0].stats.tokens_per_second)
    return {
        "rows": settings.batch,
        "window": window,
        "tokens_per_second_1": median(alone),
        "tokens_per_second": median(together),
        "speedup": median(together) / median(alone),
    }


def _runs(arm: ArmSamples) -> list[TimedRun]:
    return [sample for runs in arm.samples for sample in runs]


def _runner(subject: Subject, what: ImagineContender, seed: int) -> Callable[[int], TimedRun]:
    """Draws prompt number `index`, from the prompt to the pixels."""
    if what.method is None:
        return lambda index: _run_hf(subject, index, seed + index)
    method = what.method

    def run(index: int) -> TimedRun:
        start = time.perf_counter()
        drawing = draw(subject.canvas, subject.prepare([index]), method, seed=seed + index)
        _decode(subject, drawing.tokens)
        seconds = time.perf_counter() - start
        stats = drawing.stats
        new = drawing.tokens[:, -subject.new :].tolist()
        return TimedRun(new, stats.decode_seconds, seconds, stats.decode_tokens, stats)

    return run


def _run_hf(subject: Subject, index: int, seed: int) -> TimedRun:
    start = time.perf_counter()
    tokens, decode_seconds = peers.sampled(subject, index, seed)
    _decode(subject, tokens)
    seconds = time.perf_counter() - start
    return TimedRun(tokens[:, -subject.new :].tolist(), decode_seconds, seconds, subject.new - 1)


@torch.no_grad()
def _decode(subject: Subject, tokens: Tensor) -> None:
    """A user waits for pixels too."""
    subject.canvas.pixels(tokens)


def _warm_up(subject: Subject, settings: ImagineBenchSettings, progress: Progress) -> None:
    """A few rounds of every contender, thrown away; a whole drawing would teach no more."""
    for arm in contenders(subject, settings):
        progress(f"{subject.kind}, warm-up: {arm.name}")
        if arm.method is None:
            peers.greedy(subject, 0, WARM)
        else:
            draw_beginning(subject, 0, arm.method, settings.seed, WARM)
