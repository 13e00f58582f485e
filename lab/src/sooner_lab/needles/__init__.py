"""Needles in haystacks of frames, or of frames and text: V-NIAH and MM-NIAH."""

from .needle import Needle, shape_needle
from .result_grid import ResultGrid, reader, run
from .task import NeedleSample, NeedleTask

__all__ = ["Needle", "NeedleSample", "NeedleTask", "ResultGrid", "reader", "run", "shape_needle"]
