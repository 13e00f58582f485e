"""The whole of `sooner bench scale`: documents, runs of every arm, figures, predictions, goals."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError
from sooner.provenance import provenance

from ...theory.cluster import StageTimes
from ..parse.pdf import write_pdf
from ..parse.sheets import sample_sheets
from .command import run_arm
from .figures import arm_rows, ratios
from .goals import goals
from .predicted import ONE, predictions
from .settings import ARMS, ScaleBenchSettings

Data = dict[str, Any]
Keep = Callable[[Data], None]


def run(
    settings: ScaleBenchSettings,
    progress: Callable[[str], None] = print,
    keep: Keep | None = None,
    before: Data | None = None,
) -> Data:
    """Run the arms, and say what follows.

    Args:
        keep: handed the result as far as it is, after each run.
        before: an earlier result of the same pages, whose runs are kept.

    Returns:
        `runs`; `arms`, `ratios`, `predictions`, `goals` made of them; `stage_times` of one worker;
        `provenance` of this run, and of those before it.

    Raises:
        SoonerError: too few cores, a run that failed, or `before` is of other pages.
    """
    cores = _cores(max(ARMS[name].workers for name in settings.arms))
    result: Data = {
        "bench": "scale",
        "settings": asdict(settings),
        "provenance": provenance("cpu", "float32", settings.seed),
        "earlier": [],
        "cores": cores,
        "runs": [],
        "stage_times": None,
    }
    if before is not None:
        _check_alike(before, settings)
        result["earlier"] = [before["provenance"], *before["earlier"]]
        result["runs"], result["stage_times"] = before["runs"], before["stage_times"]
    with tempfile.TemporaryDirectory() as folder:
        for pages, repeats in ((settings.short, 1), (settings.pages, settings.repeats)):
            if not pages:
                continue
            progress(f"drawing {pages} pages")
            documents = write_documents(Path(folder) / f"{pages}", pages, settings)
            for _ in range(repeats):
                _repeat(result, documents, pages, settings, progress, keep)
    return _told(result)


def _repeat(
    result: Data,
    documents: Path,
    pages: int,
    settings: ScaleBenchSettings,
    progress: Callable[[str], None],
    keep: Keep | None,
) -> None:
    """Every arm once on the same pages, forwards and backwards in turn."""
    done = [one for one in result["runs"] if one["pages"] == pages]
    repeat = 1 + max((one["repeat"] for one in done), default=-1)
    for name in settings.arms if repeat % 2 == 0 else reversed(settings.arms):
        progress(f"{name}: {pages} pages, repeat {repeat + 1}")
        out = documents.parent / "out"
        made = run_arm(
            name, ARMS[name], documents, out, result["cores"], settings, repeat=repeat, pages=pages
        )
        result["runs"] = [*result["runs"], asdict(made)]
        if name == ONE and pages == settings.pages:
            result["stage_times"] = StageTimes.read(out).as_dict()
        shutil.rmtree(out)
        if keep is not None:
            keep(_told(result))


def _told(result: Data) -> Data:
    """The result with what follows of its runs."""
    rows = arm_rows(result["runs"])
    told = {**result, "arms": rows, "ratios": ratios(rows)}
    told["predictions"] = predictions(rows, result["stage_times"])
    told["goals"] = goals(told)
    return told


def write_documents(folder: Path, pages: int, settings: ScaleBenchSettings) -> Path:
    """Scans of so many pages, different ones, in PDFs of `document_pages`."""
    folder.mkdir()
    sheets = sample_sheets(pages, "document", settings.seed)
    size = settings.document_pages
    for first in range(0, pages, size):
        write_pdf(folder / f"{first // size:03}.pdf", sheets[first : first + size], False)
    return folder


def _cores(count: int) -> list[int]:
    there = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(there) < count:
        raise SoonerError(
            f"{count} workers need {count} cores that they can be kept on, and there are "
            f"{len(there)}; leave arms out with --arms"
        )
    return there[:count]


def _check_alike(before: Data, settings: ScaleBenchSettings) -> None:
    """Runs of other pages or other settings can't be put beside these."""
    now = asdict(settings)
    for name in ("pages", "document_pages", "drafter", "model", "in_flight", "seed"):
        if before["settings"][name] != now[name]:
            raise SoonerError(
                f"the result to add to has {name} {before['settings'][name]}, and this run "
                f"{now[name]}; write another file"
            )
