"""Runs that take their process with them; a module that imports no tests, for quick starts."""

from __future__ import annotations

import os
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sooner.documents import Page
from sooner.tasks.parse import Delivery, ParsedPage
from sooner.tasks.parse.output import Intake
from tasks.drafting import EchoParser, SayNumber
from tasks.parse_jobs import job, run
from tasks.parse_workers import FORMATS

DEATHS = 9
"""Attempts of long runs: random kills must not set a page aside, its own must."""


DEADLY = {("0.pdf", 2), ("again.pdf", 2), ("2.pdf", 7)}
"""Pages that kill their process; the first two are one, see `parse_workers.tree`."""


class Dies(EchoParser):
    """Takes its process with it at page 2."""

    def __call__(self, page: Page, draft: Any = None) -> ParsedPage:
        if page.number == 2:
            os._exit(7)
        return super().__call__(page, draft)


class Deadly(EchoParser):
    """Some pages kill their process, by what is on them, and some are slow."""

    def __call__(self, page: Page, draft: Any = None) -> ParsedPage:
        if (page.source.name, page.number) in DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        if page.number % 4 == 0:
            time.sleep(0.15)
        return super().__call__(page, draft)


def die(source: Path, out: Path, **options: Any) -> None:
    job(source, out, SayNumber(), **options).run(Dies)


def die_opening(source: Path, out: Path) -> None:
    """A run that ends with its process where `a.pdf` is opened."""
    count = Intake.count
    Intake.count = lambda self, item: (
        os._exit(9) if item.path.name == "a.pdf" else count(self, item)
    )
    run(source, out)


def work_and_die(
    source: Path, out: Path | str, deaths: int = DEATHS, begun: Connection | None = None
) -> None:
    """A run that says when it begins."""
    options = {"delivery": Delivery(out, FORMATS), "attempts": deaths}
    parse_job = job(source, Path("unused"), SayNumber(), **options)
    if begun is not None:
        begun.send_bytes(b"begun")
    parse_job.run(Deadly)
