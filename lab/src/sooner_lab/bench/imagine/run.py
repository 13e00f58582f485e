"""The whole of `sooner bench imagine`, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from sooner.provenance import provenance

from ..figures import check_matplotlib
from . import subjects
from .breakdown import breakdown, large_vocabulary
from .film import tell
from .goals import goals
from .inception import check_weights
from .keeping import check_model, kept_of
from .quality import judged
from .settings import KINDS, ImagineBenchSettings
from .speed import Progress, batch_figures, measure
from .study import study
from .subjects import Subject

Keep = Callable[[dict[str, Any]], None]
PARTS: dict[str, Callable[[Subject, ImagineBenchSettings, Progress], Any]] = {
    "quality": judged,
    "breakdown": breakdown,
    "study": study,
    "story": tell,
}
"""What each part but the first two adds to its kind's figures, under its own name."""


def run(
    settings: ImagineBenchSettings,
    progress: Progress = print,
    keep: Keep | None = None,
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure and return the result object.

    Args:
        settings: what is measured.
        progress: told what runs.
        keep: handed the result as far as it is, after each part, so that nothing is lost.
        before: an earlier result, whose kinds and parts are kept where this run does not measure
            them anew; `kept` then names them.

    Returns:
        `arms`, a row of figures for each kind, arm and window; under each kind's name its `parity`,
        `batch`, `quality`, `breakdown`, `study` and `story`; `vocabulary`, `goals`, `provenance`.

    Raises:
        SoonerError: `before` is of other models.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.fid_weights is not None:
        check_weights(settings.fid_weights)
    if settings.figures is not None and "story" in settings.parts:
        check_matplotlib()
    result: dict[str, Any] = {"bench": "imagine", "model": "", **kept_of(before, settings)}
    for kind in settings.kinds:
        progress(f"{kind}: loading")
        subject = subjects.load(kind, settings)
        check_model(result, kind, subject.name)
        dtype = str(subject.canvas.dtype).removeprefix("torch.")
        result["provenance"] = provenance(str(subject.canvas.device), dtype, settings.seed)
        for arms, figures in one_kind(subject, settings, progress):
            result["arms"] += arms
            result[kind] = result.get(kind, {}) | figures
            _told(result, keep)
    if "breakdown" in settings.parts:
        progress("sampling at a vocabulary of 65,536")
        result["vocabulary"] = large_vocabulary(settings.seed)
        _told(result, keep)
    return result


def _told(result: dict[str, Any], keep: Keep | None) -> None:
    """Bring what is made of all parts up to date, and hand the result over."""
    result["model"] = " and ".join(result[kind]["model"] for kind in KINDS if kind in result)
    result["goals"] = goals(result)
    if keep is not None:
        keep(result)


def one_kind(
    subject: Subject, settings: ImagineBenchSettings, progress: Progress
) -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    """The results of each part for pictures or clips: rows of arms, and figures by name."""
    grid = subject.canvas.grid
    yield (
        [],
        {
            "model": subject.name,
            "grid": [grid.frames, grid.height, grid.width],
            "new_tokens": subject.new,
            "guidance": subject.canvas.sampling.guidance,
        },
    )
    if "speed" in settings.parts:
        timed = measure(subject, settings, progress)
        yield timed.pop("arms"), timed
    has_batch = settings.batch > 1 and subject.kind == "image"  # a clip's would take minutes
    if has_batch and "batch" in settings.parts:
        yield [], {"batch": batch_figures(subject, settings, progress)}
    for name, part in PARTS.items():
        if name in settings.parts:
            yield [], {name: part(subject, settings, progress)}
