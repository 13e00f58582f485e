"""Pictures of regions, cut out of their page: figures, and tables and formulas on request."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from PIL import Image

from ....checks import check_choice
from ....documents import Page
from ....documents.regions import Box, Label, Size, clipped
from ..result import ParsedPage

KINDS: dict[str, str] = {"picture": Label.PICTURE, "table": Label.TABLE, "formula": Label.FORMULA}

NAMES: dict[str, str] = {Label.PICTURE: "figure", Label.TABLE: "table", Label.FORMULA: "formula"}

MARGIN = 4
"""Pixels around a region, for strokes that a layout box cuts."""

MIN_SIDE = 8
"""Pixels of a side, below which nothing can be seen."""


def check_figures(text: str) -> tuple[str, ...]:
    """Returns labels of regions from a list with commas, each once; none of an empty text.

    Raises:
        SoonerError: an unknown one.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        check_choice("figures", name, KINDS)
    return tuple(dict.fromkeys(KINDS[name] for name in names))


def named(parsed: ParsedPage, labels: Sequence[str]) -> ParsedPage:
    """Returns a page whose regions name the files of their pictures.

    Args:
        labels: of the regions that are cut out, if they have a box that is not too small.
    """
    counts: Counter[str] = Counter()
    regions = []
    for region in parsed.regions:
        if region.label in labels and crop_box(region.bbox, parsed.size) is not None:
            counts[region.label] += 1
            kind, number = NAMES[region.label], counts[region.label]
            name = f"page-{parsed.number:04d}-{kind}-{number}.png"
            region = replace(region, picture=name)
        regions.append(region)
    return replace(parsed, regions=regions)


def crops(page: Page, parsed: ParsedPage) -> dict[str, bytes]:
    """Returns PNG files by name of a page whose regions are `named`; unused without any."""
    result = {}
    for region in parsed.regions:
        if region.picture and (box := crop_box(region.bbox, page.size)) is not None:
            x0, y0, x1, y1 = box
            buffer = io.BytesIO()
            Image.fromarray(page.picture[y0:y1, x0:x1]).save(buffer, format="PNG")
            result[region.picture] = buffer.getvalue()
    return result


def crop_box(box: Box | None, size: Size) -> tuple[int, int, int, int] | None:
    """Returns pixels of a region with a margin; `None` if there is not enough to be seen.

    Args:
        box: of the region.
        size: of its page.
    """
    if box is None:
        return None
    x0, y0, x1, y1 = clipped(box, *size)
    if min(x1 - x0, y1 - y0) < MIN_SIDE:
        return None
    x0, y0, x1, y1 = clipped((x0 - MARGIN, y0 - MARGIN, x1 + MARGIN, y1 + MARGIN), *size)
    return int(x0), int(y0), round(x1), round(y1)
