"""The whole of `sooner bench imagine`, part by part."""

from __future__ import annotations

from typing import Any

import torch

from sooner.errors import SoonerError

from ..run import Data, Keep, Progress, Recorder, earlier_runs
from . import subjects
from .goals import goals
from .settings import KINDS, ImagineBenchSettings
from .speed import batch_figures, measure
from .study import study
from .subjects import Subject

PARTS = {"speed": "parity", "batch": "batch", "study": "study"}
"""What each part puts under its kind's name."""


def run(
    settings: ImagineBenchSettings,
    progress: Progress = print,
    keep: Keep | None = None,
    before: Data | None = None,
) -> Data:
    """Measure and return the result object.

    Args:
        settings: what is measured.
        progress: receives a line about what runs.
        keep: writes the result as far as it is, after each part.
        before: an earlier result, whose kinds and parts are kept where this run does not measure
            them anew; `kept` then names them.

    Returns:
        `arms`, a row of figures for each kind, arm and window; under each kind's name its `parity`,
        `batch` and `study`; `goals`, `provenance`.

    Raises:
        SoonerError: `before` is of other models.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    recorder = Recorder("imagine", settings, goals, keep, model="")
    result = recorder.result
    result |= earlier_parts(before, settings)
    for kind in settings.kinds:
        progress(f"{kind}: loading")
        subject = subjects.load(kind, settings)
        other = result.get(kind, {}).get("model", subject.name)
        if other != subject.name:
            raise SoonerError(f"the result to add to is of '{other}'; write another file")
        canvas = subject.canvas
        recorder.origin(canvas.device, canvas.dtype, settings.seed)
        grid = canvas.grid
        result[kind] = result.get(kind, {}) | {
            "model": subject.name,
            "grid": [grid.frames, grid.height, grid.width],
            "new_tokens": subject.new,
            "guidance": canvas.sampling.guidance,
        }
        result["model"] = " and ".join(result[each]["model"] for each in KINDS if each in result)
        for part in settings.parts:
            _measure(recorder, subject, part, settings, progress)
    return result


def _measure(
    recorder: Recorder, subject: Subject, part: str, settings: ImagineBenchSettings, tell: Progress
) -> None:
    """Measure one part of one kind, and write it."""
    kind, result = subject.kind, recorder.result
    figures: dict[str, Any] = {}
    if part == "speed":
        figures = measure(subject, settings, tell)
        result["arms"] = [*result["arms"], *figures.pop("arms")]
    elif part == "study":
        figures = {"study": study(subject, settings, tell)}
    elif settings.batch > 1 and kind == "image":  # a clip's would take minutes
        figures = {"batch": batch_figures(subject, settings, tell)}
    recorder.add(**{kind: {**result[kind], **figures}})


def earlier_parts(before: Data | None, settings: ImagineBenchSettings) -> Data:
    """Return the kinds and parts of `before` that `settings` leave out, ready to be added to."""
    merged: Data = {"arms": []}
    parts: list[str] = []
    for kind in (kind for kind in KINDS if kind in (before or {})):
        assert before is not None
        anew = settings.parts if kind in settings.kinds else ()
        dropped = {PARTS[part] for part in anew}
        merged[kind] = {name: value for name, value in before[kind].items() if name not in dropped}
        if "speed" not in anew:
            merged["arms"] += [arm for arm in before["arms"] if arm["kind"] == kind]
        parts += [f"{kind} {part}" for part, name in PARTS.items() if name in merged[kind]]
    return {**merged, "kept": earlier_runs(before or {}, parts)} if parts else merged
