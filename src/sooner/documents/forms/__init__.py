"""Forms in which models answer: how each writes regions, and how its answers are read.

`base` says what a form is, and has texts alone; `layout` dots.ocr's JSON, `grounding`
DeepSeek-OCR's tags, `doctags` those of docling's models, `chandra` HTML with boxes.
"""

from .base import Blocks, FormAnswer, FrontMatter, PageForm
from .chandra import Chandra
from .doctags import DocTags
from .grounding import Grounding
from .layout import LayoutJson

__all__ = [
    "Blocks",
    "Chandra",
    "DocTags",
    "FormAnswer",
    "FrontMatter",
    "Grounding",
    "LayoutJson",
    "PageForm",
]
