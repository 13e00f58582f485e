"""Documents to Markdown: drafts of an OCR pipeline, verified by a model that reads pages.

>>> parser = PageParser(load_parser("Qwen/Qwen3-VL-2B-Instruct"))
>>> for page in read_pages("paper.pdf"):
...     print(parser(page, OCR()(page)).markdown)
"""

from .parser import PageParser
from .result import FAILED, PARTIAL, SUCCESS, ParsedPage, ParsedRegion, StageStats
from .settings import ParseSettings

__all__ = [
    "FAILED",
    "PARTIAL",
    "SUCCESS",
    "PageParser",
    "ParseSettings",
    "ParsedPage",
    "ParsedRegion",
    "StageStats",
]
