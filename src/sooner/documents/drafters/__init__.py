"""Drafters of pages: OCR, a PDF's own text layer, and files that other programs saved."""

from ..page import BLANK, PageDrafter
from .ocr import OCR
from .saved import PlainText, SavedJson
from .text_layer import TextLayer

__all__ = [
    "BLANK",
    "OCR",
    "PageDrafter",
    "PlainText",
    "SavedJson",
    "TextLayer",
]
