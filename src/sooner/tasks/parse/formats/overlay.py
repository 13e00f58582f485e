"""Pictures of pages with the boxes of their regions, in reading order."""

from __future__ import annotations

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from ....documents import Page
from ....documents.regions import Box
from ..result import ParsedPage, ParsedRegion

LONGEST = 1200

"""Pixels of the longer side."""

COLOURS = {
    "Title": "#c0392b", "Section-header": "#d35400", "Text": "#2471a3", "List-item": "#148f77",
    "Table": "#7d3c98", "Formula": "#b7950b", "Picture": "#707b7c",
}  # fmt: skip

OTHER = "#34495e"


def overlay(page: Page, parsed: ParsedPage) -> bytes:
    """Returns a PNG of the page with the boxes of its regions, each with its place in reading
    order, from 1, and what it is. Regions that share a box share its tag.
    """
    image = Image.fromarray(page.picture)
    image.thumbnail((LONGEST, LONGEST))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(max(image.height / 55, 9))
    across, down = image.width / page.width, image.height / page.height
    for (x0, y0, x1, y1), regions in by_box(parsed.regions).items():
        box = (x0 * across, y0 * down, x1 * across, y1 * down)
        colour = COLOURS.get(regions[0].label, OTHER)
        draw.rectangle(box, outline=colour, width=2)
        numbers = ", ".join(str(region.order + 1) for region in regions)
        _tag(draw, box, f"{numbers} {regions[0].label}", colour, font)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def by_box(regions: Sequence[ParsedRegion]) -> dict[Box, list[ParsedRegion]]:
    """Returns regions that have a box, those of the same one together."""
    result: dict[Box, list[ParsedRegion]] = {}
    for region in regions:
        if region.bbox is not None:
            result.setdefault(region.bbox, []).append(region)
    return result


def _tag(draw: ImageDraw.ImageDraw, box: Box, text: str, colour: str, font: object) -> None:
    """A name above a box's upper right corner, where it hides least; inside, without room."""
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)  # type: ignore[arg-type]
    width, height = right - left + 6, bottom - top + 4
    x = max(box[2] - width, 0.0)
    y = box[1] - height if box[1] >= height else box[1]
    draw.rectangle((x, y, x + width, y + height), fill=colour)
    draw.text((x + 3 - left, y + 2 - top), text, fill="white", font=font)  # type: ignore[arg-type]
