"""Documents to Markdown: drafts of an OCR pipeline, verified by a model that reads pages.

>>> parser = PageParser(load_parser("Qwen/Qwen3-VL-2B-Instruct"))
>>> for page in read_pages("paper.pdf"):
...     print(parser(page, OCR()(page)).markdown)
"""

from .delivery import Delivery
from .job import ParseJob
from .parser import PageParser
from .result import FAILED, PARTIAL, SUCCESS, ParsedPage, ParsedRegion, StageStats
from .settings import ParseSettings

__all__ = [
    "FAILED",
    "PARTIAL",
    "SUCCESS",
    "Delivery",
    "PageParser",
    "ParseJob",
    "ParseSettings",
    "ParsedPage",
    "ParsedRegion",
    "StageStats",
]
