"""The interface of a drafter."""

from __future__ import annotations

from typing import Protocol

from ..page import Page
from ..regions import PageDraft

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
