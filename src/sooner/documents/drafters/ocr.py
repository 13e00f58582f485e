"""OCR by rapidocr, lines put together with rapid-layout's boxes: the default pipeline."""

from __future__ import annotations

import multiprocessing
import threading
import time
from typing import Any

import numpy as np
from PIL import Image

from ...errors import SoonerError
from ..boxes import around
from ..bullets import with_bullets
from ..grouping import regions_of
from ..lines import Line, with_markers
from ..page import Page, Picture
from ..regions import PageDraft
from ..resolution import MOST_SIDE
from .base import BLANK
from .engines import needed, quiet
from .layout import Layout

LEAST_SIDE = 12
"""Pixels of a side below which no line of text fits."""


class OCR:
    """Text detection and recognition by PP-OCR's models as ONNX, which ship with rapidocr.

    Nothing is fetched from anywhere. Models are loaded when the first page comes.

    Args:
        threads: of the CPU, for each model.
        longest: pixels of a page's longer side when text is looked for and read; smaller is
            faster, and misses small print.
        layout: finds boxes and what they are; `True` for rapid-layout, `False` for none.
        upside_down: look for lines that stand on their heads, which costs a little.
        squeeze: share of a page's width that is kept. Reading takes time by the width of lines:
            0.8 saves a fifth of it, and loses few words of clean print, but many of bad scans.

    Raises:
        SoonerError: an option out of range; when called, if a package is not installed or a model
            can't be loaded.
    """

    name = "ocr"

    def __init__(
        self,
        threads: int = 1,
        longest: int = 1280,
        layout: bool | Layout = True,
        upside_down: bool = False,
        squeeze: float = 1.0,
    ) -> None:
        if threads < 1 or longest < 1 or not 0.3 <= squeeze <= 1:
            raise SoonerError(
                f"OCR: threads is {threads}, longest {longest}, squeeze {squeeze}; they must be 1 "
                "or more, 1 or more, and from 0.3 to 1"
            )
        self.threads, self.longest, self.upside_down = threads, longest, upside_down
        self.squeeze = squeeze
        self.layout = Layout(threads) if layout is True else layout or None
        self._engine: Any = None
        self._lock = threading.Lock()

    def __call__(self, page: Page) -> PageDraft:
        self._ready()  # loading is no part of a page's time
        began = time.perf_counter()
        lines = with_bullets(with_markers(self.lines(page)), page.picture)
        areas = self.layout(page) if self.layout is not None and lines else []
        regions = regions_of(lines, page.size, areas)
        reason = "" if lines else BLANK
        return PageDraft(regions, time.perf_counter() - began, self.name, page.size, reason)

    def lines(self, page: Page) -> list[Line]:
        """Lines of text with boxes in pixels of the page's picture."""
        scale = min(1.0, self.longest / max(page.size))
        if min(page.size) * scale < LEAST_SIDE:
            return []
        picture = _shrunk(page.picture, scale, self.squeeze)
        self._ready()
        with self._lock:
            found = self._engine(np.ascontiguousarray(picture[:, :, ::-1]))  # BGR
        boxes, texts = getattr(found, "boxes", None), getattr(found, "txts", None)
        if boxes is None or not texts:
            return []
        back = np.array(page.size) / (picture.shape[1], picture.shape[0])
        scores = getattr(found, "scores", None)
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
        names = ("threads", "longest", "upside_down", "squeeze")
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
            "Global.use_cls": self.upside_down,
            "Global.max_side_len": MOST_SIDE,  # pages come as small as they shall be
            f"{engine}.intra_op_num_threads": self.threads,
            f"{engine}.inter_op_num_threads": 1,
            # Enlarging a small page finds no more, and takes longer.
            "Det.limit_side_len": 32,
            # Lines of a batch are as wide as the widest one, so one thread is best off without.
            "Rec.rec_batch_num": 1 if self.threads == 1 else 6,
            "Rec.rec_img_shape": [3, 48, 32],
        }
        try:
            with quiet():
                return package.RapidOCR(params=settings)
        except Exception as error:
            raise SoonerError(f"rapidocr can't load its models: {str(error)[:120]}") from error


def _shrunk(picture: Picture, scale: float, squeeze: float) -> Picture:
    if scale == squeeze == 1.0:
        return picture
    height, width = picture.shape[:2]
    size = max(round(width * scale * squeeze), 1), max(round(height * scale), 1)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BILINEAR))


def _line(corners: np.ndarray, text: str, score: float | None) -> Line:
    """A line from its four corners, `[4, 2]`, clockwise from the top left."""
    points = corners.reshape(4, 2).astype(float)
    size = (np.linalg.norm(points[3] - points[0]) + np.linalg.norm(points[2] - points[1])) / 2
    bbox = around((x, y, x, y) for x, y in points.tolist())
    confidence = None if score is None else float(score)
    return Line(" ".join(text.split()), bbox, float(size), confidence)
