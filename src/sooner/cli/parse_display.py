"""Pages as they are done: a line each, with speed and estimate, and on a terminal a bar."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..miniatures import MADE_UP
from .display import Display, comparison, figures

if TYPE_CHECKING:
    from ..storage import Store
    from ..tasks.parse.result import Counts

STYLES = {"SUCCESS": "", "DRAFT": "", "PARTIAL": "yellow", "FAILED": "red"}


class PagesDisplay:
    """What a person sees of a run.

    Args:
        display: where.

    Attributes:
        texts: the results' store, if each page's Markdown shall be shown as well.
    """

    def __init__(self, display: Display) -> None:
        self.display = display
        self.texts: Store | None = None
        self._is_warned = False  # that a miniature knows its own world alone
        self._drafts, self._why = 0, ""  # pages that no model verified

    def page(self, record: dict[str, Any], counts: Counts) -> None:
        """A page is done; failures are told even if nothing else is."""
        line = page_line(record, counts)
        if self.display.err.is_terminal:
            self.display.stage("pages", round(counts.expected))
        if record["status"] == "FAILED":
            self.display.error(line)
        else:
            for name in record["files"]:
                if self.texts is not None and name.endswith(".md"):
                    self.display.line(self.texts.read(name).decode().strip() + "\n")
            self.display.line(f"  {line}", STYLES[record["status"]])
            for note in record["notes"]:
                if MADE_UP not in note or not self._is_warned:
                    self.display.line(f"    {note}", "yellow")
                self._is_warned = self._is_warned or MADE_UP in note
            if record.get("compared") is not None:
                line, style = comparison({**record["compared"], "mode": record["mode"]})
                self.display.line(f"    {line}", style)
        if record["status"] == "DRAFT":
            self._drafts, self._why = self._drafts + 1, record["reason"]
        self.display.advance(counts.done + counts.failed, round(counts.expected))

    def counts(self, counts: Counts) -> str:
        """Returns how many pages are in which state."""
        text = f"{counts.done} of {known(counts)} pages parsed"
        text += f", {counts.partial} of them in part" if counts.partial else ""
        text += f", {counts.before} done before" if counts.before else ""
        text += f", {counts.aside} set aside" if counts.aside else ""
        return text + (f", {counts.failed} failed" if counts.failed else "")

    def summary(self, counts: Counts) -> list[str]:
        """Returns lines for the end."""
        line = self.counts(counts)
        if counts.done:
            line += f"; {counts.pages_per_second:.2f} pages/s"
        text = "1 page is a draft" if self._drafts == 1 else f"{self._drafts} pages are drafts"
        return [line, f"{text}: {self._why}"] if self._drafts else [line]


def page_line(record: dict[str, Any], counts: Counts) -> str:
    """Returns one page in a line."""
    done = counts.done + counts.failed
    page = f" page {record['page']}" if record["page"] else ""
    name = "".join(
        letter if letter.isprintable() else ascii(letter)[1:-1] for letter in record["document"]
    )
    line = f"[{done}/{known(counts)}] {name}{page}: {record['status']}"
    if record["status"] == "DRAFT":  # the end of the run says once why
        record = {**record, "reason": None, "tokens": None}
    if record["reason"]:
        line += f", {record['reason']}"
    if record["status"] == "FAILED":
        return line
    line += f", {figures(record, 'tokens', 'regions', 'mode', 'mean_acceptance_length')}"
    return f"{line}, {record['seconds']['e2e']:.2f} s{pace(counts)}"


def known(counts: Counts) -> str:
    """Returns pages in all; with a plus as long as some documents were not opened yet."""
    return f"{counts.total}{'' if counts.is_total_known else '+'}"


def pace(counts: Counts) -> str:
    """Returns speed, and about how long the rest takes."""
    left = counts.seconds_left
    if not left:
        return ""
    rest = timedelta(seconds=round(left))
    return f"; {counts.pages_per_second:.2f} pages/s, about {rest} left"
