"""Pages of PDFs and pictures, and drafts of their text.

Needs the extra `ocr` for PDFs and OCR; importing this loads neither.
"""

from .inputs import Document, PageRange, fetched, find_documents
from .page import BrokenPage, Line, Page, PageText, Resolution
from .pages import read_pages
from .regions import PageDraft, Region
from .serialise import DOTS, MARKDOWN, Style, draft_texts, texts_of, to_markdown

__all__ = [
    "DOTS",
    "MARKDOWN",
    "BrokenPage",
    "Document",
    "Line",
    "Page",
    "PageDraft",
    "PageRange",
    "PageText",
    "Region",
    "Resolution",
    "Style",
    "draft_texts",
    "fetched",
    "find_documents",
    "read_pages",
    "texts_of",
    "to_markdown",
]
