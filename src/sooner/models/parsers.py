"""Document parsers that number every token in one line, as text models do."""

from __future__ import annotations

from .base import Adapter


class Parser(Adapter):
    """GOT-OCR 2.0, LightOnOCR, DeepSeek-OCR 2 and Qianfan-OCR.

    Features in place of placeholder tokens, one running position for every token, and a decoder
    that sees backwards only.
    """

    model_types = ("deepseek_ocr2", "got_ocr2", "lighton_ocr", "qianfan_ocr")
