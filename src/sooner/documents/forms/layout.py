"""The JSON list of `{bbox, category, text}` of dots.ocr as a form of answers."""

from __future__ import annotations

import json

from ..layout_json import cell_json, read_layout_json
from ..regions import PICTURE, Region, Size
from ..serialise import DOTS, Style, texts_of
from .base import FormAnswer, PageForm


class LayoutJson(PageForm):
    """One list of elements; boxes are pixels of the picture as the model sees it."""

    style: Style = DOTS
    has_boxes = True

    def texts(self, region: Region, size: Size, seen: Size | None = None) -> list[str]:
        texts = texts_of(region, self.style) or [""] * (region.label == PICTURE)
        return [self.element(region, text, size, seen) for text in texts]

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        return cell_json(region, text, size, seen)

    def start(self, first: Region) -> str:
        return "["

    def between(self, region: Region, following: Region) -> str:
        return ", "

    def end(self, last: Region) -> str:
        return "]"

    def read(self, text: str) -> FormAnswer:
        layout = read_layout_json(text)
        drafts = (region.drafts[0] if region.drafts else "" for region in layout.regions)
        written = [json.dumps(draft, ensure_ascii=False)[1:-1] for draft in drafts]
        return FormAnswer(layout.regions, written, layout.repaired)
