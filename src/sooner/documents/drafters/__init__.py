"""Drafters of pages: OCR, a PDF's own text layer, and files that other programs saved."""

from .base import BLANK, PageDrafter
from .combine import AllOf, FirstOf
from .guard import guarded
from .ocr import OCR, LayoutModel
from .plain import PlainText, TextLayer
from .saved import SavedJson

__all__ = [
    "BLANK",
    "OCR",
    "AllOf",
    "FirstOf",
    "LayoutModel",
    "PageDrafter",
    "PlainText",
    "SavedJson",
    "TextLayer",
    "guarded",
]
