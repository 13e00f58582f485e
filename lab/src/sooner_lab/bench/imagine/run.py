"""The whole of `sooner bench imagine`: arms timed behind a greedy parity gate.

Sampled drawings can't be compared token by token, so the gate is greedy: plain decoding and Jacobi
iteration must say what the model's own `generate` says. Canvas tests held the sampled distribution
against a known law (docs/results/canvas.md).
"""

from __future__ import annotations

from typing import Any

import torch

from sooner.methods import Autoregressive, CoupledJacobi
from sooner.parity import Parity, compare

from ..goals import goal
from ..run import Data, Keep, Progress, Recorder, measure, row
from . import subjects
from .arms import contenders, draw_beginning, greedy_by_generate
from .settings import FIXED, ImagineBenchSettings
from .subjects import Subject

METHOD = "gumbel"
"""The coupling that goals are about, the default of `CoupledJacobi`."""
STILL = 1.05
"""A window that is doubled and saves less than this factor has stopped helping."""
BOUNDS = {"image": (4.2, 2.5), "video": (13.0, 6.0)}
"""Least ratios of plain decoding's forwards and decoding time to the coupled arm's."""


def run(
    settings: ImagineBenchSettings, progress: Progress = print, keep: Keep | None = None
) -> Data:
    """Measure and return the result object.

    Args:
        settings: what is measured.
        progress: receives a line about what runs.
        keep: writes the result as far as it is, after each kind.

    Returns:
        `arms`, a row of figures for each kind, arm and window; under each kind's name its `parity`;
        `goals`, `provenance`.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    recorder = Recorder("imagine", settings, goals, keep, model="")
    arms: list[Data] = []
    models: list[str] = []
    for kind in settings.kinds:
        progress(f"{kind}: loading")
        subject = subjects.load(kind, settings)
        canvas = subject.canvas
        recorder.origin(canvas.device, canvas.dtype, settings.seed)
        grid = canvas.grid
        figures = speed(subject, settings, progress)
        arms += figures.pop("arms")
        models.append(subject.name)
        about = {
            "model": subject.name,
            "grid": [grid.frames, grid.height, grid.width],
            "new_tokens": subject.new,
            "guidance": canvas.sampling.guidance,
        }
        recorder.add(model=" and ".join(models), arms=arms, **{kind: {**about, **figures}})
    return recorder.result


def speed(subject: Subject, settings: ImagineBenchSettings, progress: Progress) -> Data:
    """Time every contender on the same prompts and seeds, in turns.

    Returns:
        `parity`, the gate's verdicts; `arms`, one row of figures each: `nfe` is the mean over
        drawings, `nfe_reduction` plain's over it.
    """
    progress(f"{subject.kind}: parity gate")
    verdicts = gate(subject, settings)
    entries = [*contenders(subject, settings)]
    arms = [entry.timed(subject, settings.seed) for entry in entries]
    measured = measure(arms, settings.samples, 1, lambda line: progress(f"{subject.kind}: {line}"))
    rows = []
    for entry, arm in zip(entries, measured, strict=True):
        arm.parity = [verdicts["plain" if entry.window is None else "jacobi"]]
        figures = row(arm, measured[0])
        samples = [sample for runs in arm.samples for sample in runs]
        nfe = [sample.stats.nfe if sample.stats else subject.new for sample in samples]
        mean = sum(nfe) / len(nfe)
        figures |= {"method": entry.arm, "kind": subject.kind, "window": entry.window}
        figures |= {"init": entry.init, "nfe": mean, "nfe_of_samples": nfe, "drawings": len(nfe)}
        figures["nfe_reduction"] = subject.new / mean
        if "decode_seconds" in figures:  # of one drawing, not of all
            figures["decode_seconds"] /= len(nfe)
            figures["e2e_seconds"] /= len(nfe)
        rows.append(figures)
    return {"parity": {name: each.as_dict() for name, each in verdicts.items()}, "arms": rows}


def gate(subject: Subject, settings: ImagineBenchSettings) -> dict[str, Parity]:
    """Compare greedy plain decoding and Jacobi iteration with the model's own `generate`."""
    tokens, scores = greedy_by_generate(subject, 0, min(settings.gate, subject.new))
    methods = {"plain": Autoregressive(), "jacobi": CoupledJacobi(max(settings.jacobi_windows))}
    verdicts = {}
    for name, method in methods.items():
        output_ids = draw_beginning(subject, 0, method, settings.seed, len(tokens), do_sample=False)
        verdicts[name] = compare(tokens, output_ids, scores)
    return verdicts


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured.

    Both sides of a ratio start from the same first drafts, or the start's gain would be told as the
    coupling's.
    """
    rows = []
    for kind in FIXED:
        arms = {
            (arm["method"], arm["window"], arm.get("init")): arm
            for arm in result["arms"]
            if arm["kind"] == kind
        }
        for init in dict.fromkeys(init for _, _, init in arms if init):
            rows += _goals_from(kind, arms, init)
    return rows


def _goals_from(kind: str, arms: dict[Any, Data], init: str) -> list[Data]:
    """Judge fewer forwards than plain and SJD, less time than plain, and that the doubling that
    ends at the fixed window helps coupled draws and not SJD."""
    rows, last = [], FIXED[kind]
    (forwards, time), where = BOUNDS[kind], f"{METHOD}, L={last}"
    if (coupled := arms.get((METHOD, last, init))) is not None:
        name = f"{kind}: forwards, plain over {where} from {init}"
        rows.append(goal(name, forwards, coupled["nfe_reduction"]))
        if (sjd := arms.get(("sjd", last, init))) is not None:
            name = f"{kind}: forwards, SJD over {where}, both from {init}"
            rows.append(goal(name, 1.8, sjd["nfe"] / coupled["nfe"]))
        if "decode_speedup" in coupled:
            name = f"{kind}: decoding time, plain over {where} from {init}"
            rows.append(goal(name, time, coupled["decode_speedup"]))
    for method in ("sjd", METHOD):
        fewer, more = (arms.get((method, window, init)) for window in (last, last // 2))
        if fewer is not None and more is not None:
            name = f"{kind}: forwards of {method}, L={last // 2} over L={last}, both from {init}"
            rows.append(goal(name, STILL, more["nfe"] / fewer["nfe"], is_upper=method == "sjd"))
    return rows
