"""What writes drafts of pages: OCR, a PDF's own text, and files that other programs saved."""

from .base import BLANK, Drafter
from .combine import AllOf, FirstOf
from .guard import guarded
from .layout import Layout
from .ocr import OCR
from .plain import PlainText
from .saved import SavedJson
from .text_layer import TextLayer

__all__ = [
    "BLANK",
    "OCR",
    "AllOf",
    "Drafter",
    "FirstOf",
    "Layout",
    "PlainText",
    "SavedJson",
    "TextLayer",
    "guarded",
]
