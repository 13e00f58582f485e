"""Needles in haystacks of frames, or of frames and text: V-NIAH and MM-NIAH."""

from .documents import Tales, Texts, read_texts
from .haystack import Cut, Haystack, MovingShapes
from .needle import Needle, shape_needle
from .result_grid import ResultGrid, reader, run
from .sample import NeedleSample
from .task import NeedleTask

__all__ = [
    "Cut",
    "Haystack",
    "MovingShapes",
    "Needle",
    "NeedleSample",
    "NeedleTask",
    "ResultGrid",
    "Tales",
    "Texts",
    "read_texts",
    "reader",
    "run",
    "shape_needle",
]
