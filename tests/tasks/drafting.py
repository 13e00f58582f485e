"""Drafters for the tests of parsing, good and bad; light, since a process of its own loads them."""

from __future__ import annotations

import os
import threading

from sooner.documents import Page, PageDraft, Region


class SayNumber:
    """A drafter that says which page it was given."""

    name = "number"

    def __call__(self, page: Page) -> PageDraft:
        return PageDraft([Region(None, drafts=[f"number {page.number}"])], 0.0, self.name)


class Hang(SayNumber):
    """Hangs at page 2 until `released`."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def __call__(self, page: Page) -> PageDraft:
        if page.number == 2:
            self.released.wait(60)
        return super().__call__(page)


class Raise(SayNumber):
    """Breaks at page 2."""

    def __call__(self, page: Page) -> PageDraft:
        if page.number == 2:
            raise RuntimeError("out of ink")
        return super().__call__(page)


class Die(SayNumber):
    """Takes its process with it at page 2."""

    def __call__(self, page: Page) -> PageDraft:
        if page.number == 2:
            os._exit(7)
        return super().__call__(page)
