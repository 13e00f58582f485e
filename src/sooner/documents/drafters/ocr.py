"""OCR by rapidocr, lines put together with rapid-layout's boxes: the default drafter of scans."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...checks import check_whole
from ...errors import SoonerError
from ..grouping import Area, regions_of
from ..lines import is_item, with_markers
from ..page import Line, Page, Picture
from ..regions import FORMULA, PageDraft, around, box, label_of, overlap
from ..resolution import MAX_SIDE
from .base import BLANK
from .ocr_models import RecognitionModel, recognition_model
from .straight import Lie, lie_of


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


class LayoutModel:
    """Boxes of a page and what they are, by the PicoDet model that ships with rapid-layout.

    That is `pp_layout_cdla`, trained on CDLA (Chinese papers; text, title, figure, table, their
    captions, header, footer, reference, equation). It works on one size, whatever the page's.

    Args:
        threads: of the CPU.
        confidence: least score of a box.

    Raises:
        SoonerError: when called, if rapid-layout is not installed, or its model can't be loaded.
    """

    def __init__(self, threads: int = 1, confidence: float = 0.5) -> None:
        self.threads, self.confidence = threads, confidence
        self._engine: Any = None
        self._lock = threading.Lock()

    def __call__(self, page: Page) -> list[Area]:
        self.ready()
        with self._lock:
            layout = self._engine(np.ascontiguousarray(page.picture[:, :, ::-1]))  # BGR
        boxes, names, scores = layout.boxes, layout.class_names, layout.scores
        if boxes is None:
            return []
        return [
            Area(box(place), label_of(name), float(score))
            for place, name, score in zip(boxes, names, scores, strict=True)
        ]

    def ready(self) -> None:
        """Load the model now, not with the first page."""
        with self._lock:
            if self._engine is None:
                self._engine = self._load()

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which loads its own model."""
        return {"threads": self.threads, "confidence": self.confidence}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _load(self) -> Any:
        package = needed("rapid_layout", "layout analysis")
        threads = {"intra_op_num_threads": self.threads, "inter_op_num_threads": 1}
        try:
            with quiet():
                return package.RapidLayout(engine_cfg=threads, conf_thresh=self.confidence)
        except Exception as error:
            raise SoonerError(f"rapid-layout can't load its model: {str(error)[:120]}") from error


REACH = 2.2
"""Heights of a line to the left of it in which a bullet is looked for."""

APART = 0.4
"""Heights that are free to the left of a bullet, which a last letter of another column's is not."""

SMALLEST, LARGEST = 0.12, 0.6
"""Width and height of a bullet in heights of its line."""

MIDDLE = (0.3, 0.7)
"""Where the middle of a bullet is, in heights of its line from the top: a full stop is lower."""

SOLID = 0.6
"""Share of a bullet's box that is ink at least."""

CONTRAST = 64
"""Difference in brightness to the paper from which a pixel is ink."""


def with_bullets(lines: Sequence[Line], picture: Picture) -> list[Line]:
    """Returns lines, with `•` in front of those that have a dot to their left and nothing else."""
    result = []
    for line in lines:
        marked = _marked(line, picture)
        dot = (marked.bbox[0], line.bbox[1], line.bbox[0], line.bbox[3])
        is_used = any(overlap(dot, other.bbox) > 0 for other in lines if other is not line)
        # The last letter of another line may be as round as a bullet.
        result.append(line if is_used else marked)
    return result


def _marked(line: Line, picture: Picture) -> Line:
    if is_item(line.text):
        return line
    x0, y0, x1, y1 = line.bbox
    left = max(round(x0 - (REACH + APART) * line.size), 0)
    window = picture[max(round(y0), 0) : round(y1), left : round(x0)]
    start = _dot(window, y1 - y0)
    if start is None:
        return line
    return replace(line, text=f"• {line.text}", bbox=(float(left + start), y0, x1, y1))


def _dot(window: Picture, height: float) -> int | None:
    """Returns where a dot begins that is the last thing in a window, in pixels from its left."""
    if min(window.shape[:2]) < 2:
        return None
    grey = window.mean(axis=2)  # [rows, columns]
    ink = np.abs(grey - np.median(grey)) > CONTRAST
    columns = np.flatnonzero(ink.any(0))
    if not len(columns):
        return None
    gaps = np.flatnonzero(np.diff(columns) > 1)
    first = columns[gaps[-1] + 1] if len(gaps) else columns[0]
    before = columns[gaps[-1]] if len(gaps) else -1 - APART * height
    dot = ink[:, first : columns[-1] + 1]
    return int(first) if first - before > APART * height and _is_round(dot, height) else None


def _is_round(ink: np.ndarray, height: float) -> bool:
    """Returns whether ink, `[rows, columns]`, is a dot beside the middle of a line."""
    rows = np.flatnonzero(ink.any(1))
    wide, high = ink.shape[1], rows[-1] - rows[0] + 1
    fits = all(SMALLEST * height <= side <= LARGEST * height for side in (wide, high))
    middle = (rows[0] + rows[-1]) / 2 / height
    even = max(wide, high) <= 1.5 * min(wide, high)
    solid = ink[rows[0] : rows[-1] + 1].mean() >= SOLID
    return bool(fits and even and solid and MIDDLE[0] <= middle <= MIDDLE[1])


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
        layout: finds boxes and what they are; `True` for rapid-layout, `False` for none.
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
        layout: bool | LayoutModel = True,
        language: str | None = None,
        models: str | Path | None = None,
    ) -> None:
        check_whole("OCR: threads", threads)
        check_whole("OCR: longest", longest)
        self.threads, self.longest = threads, longest
        self.language, self.models = language, models
        self._recognition: RecognitionModel | None = None
        if language is None and models is not None:
            raise SoonerError(f"OCR: models is '{models}', but no language says which to use")
        if language is not None:
            needed("rapidocr", "OCR")
            folder = None if models is None else Path(models).expanduser()
            self._recognition = recognition_model(language, folder)
        self.layout = LayoutModel(threads) if layout is True else layout or None
        self._engine: Any = None
        self._lock = threading.Lock()

    def __call__(self, page: Page) -> PageDraft:
        self._ready()  # loading is no part of a page's time
        began = time.perf_counter()
        lie = self._lie(page)
        straight = replace(page, picture=lie.straight(page.picture)) if lie else page
        lines = with_bullets(with_markers(self.lines(straight)), straight.picture)
        areas = self.layout(straight) if self.layout is not None and lines else []
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

    def _lie(self, page: Page) -> Lie:
        if min(page.size) * min(1.0, self.longest / max(page.size)) < MIN_SIDE:
            return Lie()
        with self._lock:
            return lie_of(page.picture, self._engine)

    def lines(self, page: Page) -> list[Line]:
        """Returns lines of text with boxes in pixels of the page's picture."""
        scale = min(1.0, self.longest / max(page.size))
        if min(page.size) * scale < MIN_SIDE:
            return []
        picture = _shrunk(page.picture, scale)
        self._ready()
        with self._lock:
            # Flags stay as the last call set them.
            result = self._engine(
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

    def _ready(self) -> None:
        with self._lock:
            if self._engine is None:
                self._engine = self._load()
        if self.layout is not None:
            self.layout.ready()

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which loads its own models."""
        names = ("threads", "longest", "language", "models")
        return {name: getattr(self, name) for name in names} | {"layout": self.layout or False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _load(self) -> Any:
        package = needed("rapidocr", "OCR")
        needed("onnxruntime", "OCR")
        if multiprocessing.parent_process() is not None:  # nobody else's setting
            needed("cv2", "OCR").setNumThreads(self.threads)
        engine = "EngineConfig.onnxruntime"
        settings = {
            "Global.log_level": "critical",
            "Global.use_cls": False,
            "Global.max_side_len": MAX_SIDE,  # pages come as small as they shall be
            f"{engine}.intra_op_num_threads": self.threads,
            f"{engine}.inter_op_num_threads": 1,
            # Enlarging a small page finds no more, and takes longer.
            "Det.limit_side_len": 32,
            # Lines of a batch are as wide as the widest one, so one thread is best off without.
            "Rec.rec_batch_num": 1 if self.threads == 1 else 6,
            "Rec.rec_img_shape": [3, 48, 32],
            **({} if self._recognition is None else self._recognition.settings()),
        }
        try:
            with quiet():
                return package.RapidOCR(params=settings)
        except Exception as error:
            raise SoonerError(f"rapidocr can't load its models: {str(error)[:120]}") from error


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
