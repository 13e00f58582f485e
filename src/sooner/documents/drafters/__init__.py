"""Drafters of pages: OCR, a PDF's own text layer, and files that other programs saved."""

from ..page import BLANK, PageDrafter
from .first_of import FirstOf
from .ocr import OCR
from .saved import PlainText, SavedJson
from .text_layer import TextLayer

__all__ = [
    "BLANK",
    "OCR",
    "FirstOf",
    "PageDrafter",
    "PlainText",
    "SavedJson",
    "TextLayer",
]
