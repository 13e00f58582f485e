"""The interface of a drafter, and boxes of other pictures of the same page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol

from ..page import Page
from ..regions import PageDraft, Region, clipped, resized

BLANK = "no text found on the page"
"""Reason of an empty draft of a blank page, which is no failure."""


class PageDrafter(Protocol):
    """Writes a draft of a page: fast, approximate (the pipeline `q_phi` of section 3.1).

    Attributes:
        name: for reports.
    """

    name: str

    def __call__(self, page: Page) -> PageDraft:
        """Returns a draft with boxes in pixels of `page.picture`; with a reason where there is
        none.

        Raises:
            SoonerError: something that would be wrong with any page, such as a missing package.
        """
        ...


def to_page(
    regions: Iterable[Region], page: Page, size: tuple[float, float] | None = None
) -> list[Region]:
    """Returns regions with boxes on the page's picture, in pixels.

    Args:
        regions: with boxes for a page of `size`.
        page: to bring them to.
        size: width and height in the unit of the boxes; the page's own pixels if not given.
    """
    return [
        region if region.bbox is None else replace(region, bbox=clipped(region.bbox, *page.size))
        for region in resized(regions, size, page.size)
    ]
