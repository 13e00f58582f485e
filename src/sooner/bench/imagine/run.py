"""The whole of `sooner bench imagine`, part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..figures import check_matplotlib
from ..provenance import provenance
from . import subjects
from .breakdown import breakdown, large_vocabulary
from .goals import goals
from .inception import check_weights
from .quality import judged
from .settings import ImagineSettings
from .speed import Progress, batch_figures, measure
from .story import tell
from .study import study
from .subjects import Subject

PARTS: dict[str, Callable[[Subject, ImagineSettings, Progress], Any]] = {
    "quality": judged,
    "breakdown": breakdown,
    "study": study,
    "story": tell,
}
"""What each part but the speed adds to its kind's figures, under its own name."""


def run(settings: ImagineSettings, progress: Progress = print) -> dict[str, Any]:
    """Measure and return the result object.

    Returns:
        `arms`, a row of figures for each kind, arm and window; under each kind's name its `parity`,
        `batch`, `quality`, `breakdown`, `study` and `story`; `vocabulary`, `goals`, `provenance`.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.fid_weights is not None:
        check_weights(settings.fid_weights)
    if settings.figures is not None and "story" in settings.parts:
        check_matplotlib()
    result: dict[str, Any] = {"bench": "imagine", "model": "", "arms": []}
    names, device, dtype = [], "cpu", "float32"
    for kind in settings.kinds:
        progress(f"{kind}: loading")
        subject = subjects.load(kind, settings)
        names.append(subject.name)
        device, dtype = str(subject.canvas.device), str(subject.canvas.dtype)
        arms, result[kind] = one_kind(subject, settings, progress)
        result["arms"] += arms
    if "breakdown" in settings.parts:
        progress("sampling at a vocabulary of 65,536")
        result["vocabulary"] = large_vocabulary(settings.seed)
    result["model"] = " and ".join(names)
    result["goals"] = goals(result)
    result["provenance"] = provenance(device, dtype.removeprefix("torch."), settings.seed)
    return result


def one_kind(
    subject: Subject, settings: ImagineSettings, progress: Progress
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The arms' rows of one kind, and everything else about it."""
    grid = subject.canvas.grid
    found: dict[str, Any] = {
        "model": subject.name,
        "grid": [grid.frames, grid.height, grid.width],
        "new_tokens": subject.new,
        "guidance": subject.canvas.sampling.guidance,
    }
    arms: list[dict[str, Any]] = []
    if "speed" in settings.parts:
        timed = measure(subject, settings, progress)
        arms = timed.pop("arms")
        found |= timed
        if settings.batch > 1 and subject.kind == "image":  # a clip's would take minutes
            found["batch"] = batch_figures(subject, settings, progress)
    for name, part in PARTS.items():
        if name in settings.parts:
            found[name] = part(subject, settings, progress)
    return arms, found
