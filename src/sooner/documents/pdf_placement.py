"""Where the points of a PDF's page are in its picture."""

from __future__ import annotations

import ctypes
import math
from types import ModuleType
from typing import Any

import numpy as np

from .page import Picture
from .regions import Box

FINE = 1_000_000
"""Pixels of the imaginary screen on which PDFium is asked where a point of the page is."""


class Placement:
    """Where a point of the page is in its picture: rotation and cropping are PDFium's affair."""

    def __init__(self, pdfium: ModuleType, page: Any, picture: Picture) -> None:
        height, width = picture.shape[:2]
        self.scale = np.array([width, height]) / FINE
        self.pdfium, self.page = pdfium, page
        origin, x, y = (self._device(*point) for point in ((0, 0), (1000, 0), (0, 1000)))
        (ax, ay), (bx, by) = (x - origin) / 1000, (y - origin) / 1000
        self.axes = float(ax), float(ay), float(bx), float(by)
        self.origin = float(origin[0]), float(origin[1])
        self.unit = math.hypot(self.axes[2], self.axes[3])  # pixels a point

    def point(self, x: float, y: float) -> tuple[float, float]:
        """Returns a point of the page, in pixels."""
        ax, ay, bx, by = self.axes
        return self.origin[0] + x * ax + y * bx, self.origin[1] + x * ay + y * by

    def box(self, left: float, bottom: float, right: float, top: float) -> Box:
        """Returns a box of the page, in pixels."""
        (x0, y0), (x1, y1) = self.point(left, bottom), self.point(right, top)
        return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)

    def angle(self, x: float, y: float) -> int:
        """Returns whole degrees clockwise from left-to-right of a direction on the page."""
        ax, ay, bx, by = self.axes
        return round(math.degrees(math.atan2(x * ay + y * by, x * ax + y * bx))) % 360

    def _device(self, x: float, y: float) -> np.ndarray:
        across, down = ctypes.c_int(), ctypes.c_int()
        self.pdfium.raw.FPDF_PageToDevice(self.page, 0, 0, FINE, FINE, 0, x, y, across, down)
        return np.array([across.value, down.value]) * self.scale
