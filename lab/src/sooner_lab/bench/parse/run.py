"""The whole of `sooner bench parse`, part by part."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

import torch

from sooner.documents.drafters import OCR, PageDrafter
from sooner.errors import SoonerError

from ..run import Keep, Progress, Recorder, earlier_runs
from .arms import Stable
from .clients import clients
from .document import documents
from .exactness import exactness
from .figures import arm_rows
from .goals import goals
from .scores import accuracy
from .settings import ParseBenchSettings
from .sheets import sample_sheets
from .speed import Course

RESULTS = {
    "arms": ("arms", "pages"), "document": ("document",),
    "exactness": ("exactness", "accuracy"), "clients": ("clients",),
}  # fmt: skip
"""What each part puts into the result; the accuracy is that of the larger sample."""
OCR_PACKAGES = ("rapidocr", "rapid-layout", "onnxruntime", "pypdfium2")


def run(
    settings: ParseBenchSettings,
    progress: Progress = print,
    keep: Keep | None = None,
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure and return the result object.

    Args:
        keep: handed the result as far as it is, after each part, so that nothing is lost.
        before: an earlier result, whose parts are kept where this run does not measure them anew;
            `earlier` then tells of the runs behind them, see `earlier_runs`.

    Raises:
        SoonerError: `before` is of another model; OCR is not installed.

    Returns:
        `arms`, a row each; `pages`, what they are made of; `accuracy`, `document`, `exactness`,
        `clients`; `goals`, `provenance`.
    """
    check_ocr()
    earlier = _retained(before, settings)
    torch.set_num_threads(settings.threads)
    progress("loading")
    stable = Stable(settings)
    drafter = make_ocr(settings.threads)
    name = "miniature:document" if settings.model is None else settings.model
    recorder = Recorder("parse", settings, goals, keep, model=name)
    recorder.origin(stable.model.device, stable.model.dtype, settings.seed)
    recorder.result |= earlier
    recorder.result["provenance"]["versions"] |= _versions()
    if "arms" in settings.parts:
        contenders = stable.contenders()
        course = Course(stable, contenders, settings.repeats, progress)
        sheets = sample_sheets(1 + settings.pages, "arms", settings.seed)
        pages, texts = course.run(sheets, drafter)
        rows = arm_rows(pages, [arm.name for arm in contenders], settings.seed)
        recorder.add(arms=rows, pages=pages)
        if "accuracy" not in recorder.result:
            recorder.add(accuracy=accuracy(texts, settings, "arms"))
    if "document" in settings.parts:
        recorder.add(document=documents(settings, stable, progress))
    if "exactness" in settings.parts and settings.exact_pages:
        recorder.add(**exactness(settings, stable, progress))
    if "clients" in settings.parts and settings.clients:
        recorder.add(clients=clients(settings, stable, drafter, progress))
    return recorder.result


def _retained(before: dict[str, Any] | None, settings: ParseBenchSettings) -> dict[str, Any]:
    """What an earlier result has and this run won't make, and what made it."""
    if before is None:
        return {}
    if before.get("settings", {}).get("model") != settings.model:
        raise SoonerError(f"the result to add to is of '{before.get('model')}'; write another file")
    of_parts = {name for part in settings.parts for name in RESULTS[part]}
    parts = {name: before[name] for names in RESULTS.values() for name in names if name in before}
    parts = {name: part for name, part in parts.items() if name not in of_parts}
    return {**parts, "kept": earlier_runs(before, sorted(parts))} if parts else {}


def check_ocr() -> None:
    """Refuse to go on without the drafter, before models are loaded.

    Raises:
        SoonerError: OCR is not installed.
    """
    if importlib.util.find_spec("rapidocr") is None:
        raise SoonerError("sooner bench parse needs rapidocr; pip install 'sooner[ocr]'")


def make_ocr(threads: int) -> PageDrafter:
    """The drafter of all parts, with as many threads as the model."""
    return OCR(threads)


def _versions() -> dict[str, str]:
    """Returns versions of what makes the drafts."""
    there = (name for name in OCR_PACKAGES if importlib.util.find_spec(name.replace("-", "_")))
    return {name: importlib.metadata.version(name) for name in there}
