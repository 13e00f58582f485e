"""Needles in haystacks of frames, or of frames and text: V-NIAH and MM-NIAH."""

from .documents import Tales, Texts, read_texts
from .haystack import Cut, Haystack, MovingShapes
from .needle import Needle, load_needles, shape_needle
from .result_grid import ResultGrid, read_grid, reader, run, write_samples
from .sample import NeedleSample
from .sources import Films, Pictures, open_haystack
from .task import NeedleTask

__all__ = [
    "Cut",
    "Films",
    "Haystack",
    "MovingShapes",
    "Needle",
    "NeedleSample",
    "NeedleTask",
    "Pictures",
    "ResultGrid",
    "Tales",
    "Texts",
    "load_needles",
    "open_haystack",
    "read_grid",
    "read_texts",
    "reader",
    "run",
    "shape_needle",
    "write_samples",
]
