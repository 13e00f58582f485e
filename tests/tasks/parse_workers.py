"""Processes that parse into one folder, and what is to be the same whoever did it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Mapping
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sooner.documents import Page
from sooner.storage import open_store
from sooner.tasks.parse import Delivery, ParsedPage
from sooner.tasks.parse.delivery import NAME
from tasks.drafting import EchoParser, SayNumber, pdf, picture
from tasks.parse_jobs import job

FORMATS = ("md", "json", "html")

PROCESSES = multiprocessing.get_context("forkserver")
"""Forks from a process of one thread. A fork of pytest's own may stand still for ever: its other
threads (xdist's, those of earlier tests) are not copied, and a lock that one held stays taken."""

PROCESSES.set_forkserver_preload(
    [
        *("sooner.tasks.parse.job", "sooner.tasks.parse.formats.docling", "numpy", "pypdfium2"),
        *("reportlab.pdfgen.canvas", "s3fs"),
    ]
)


def begin(function: Callable[..., object], *args: Any, **named: Any) -> BaseProcess:
    """Call a function of a module in a process with this one's environment."""
    _forks_at_once()
    process = PROCESSES.Process(
        target=_call, args=(dict(os.environ), function, args, named), daemon=True
    )
    process.start()
    return process


def _call(
    environment: Mapping[str, str],
    function: Callable[..., object],
    args: tuple[Any, ...],
    named: dict[str, Any],
) -> None:
    os.environ.clear()  # it is the environment of the first process's start
    os.environ.update(environment)
    function(*args, **named)


@cache
def _forks_at_once() -> None:
    """The first process waits for imports; a kill within the first second would find no work."""
    first = PROCESSES.Process(target=int)
    first.start()
    first.join()


class TakesTime(EchoParser):
    """Takes up to `longest` seconds a page."""

    def __init__(self, longest: float = 0.02) -> None:
        super().__init__()
        self.longest = longest

    def __call__(self, page: Page, draft: Any = None) -> ParsedPage:
        time.sleep(random.random() * self.longest)
        return super().__call__(page, draft)


def tree(root: Path, documents: int = 3, pages: int = 4) -> Path:
    """Documents of several pages, a picture, and the first document at a second place."""
    (root / "sub").mkdir(parents=True)
    for number in range(documents):
        pdf(root / f"{number}.pdf", pages + number)
    picture(root / "sub" / "scan.png")
    (root / "sub" / "again.pdf").write_bytes((root / "0.pdf").read_bytes())
    return root


def work(source: Path, out: Path | str, longest: float = 0.02, **options: Any) -> list[int]:
    """A run of its own; the pages that it parsed."""
    parser = TakesTime(longest)
    arguments = {"delivery": Delivery(out, FORMATS), "drafter": SayNumber(), **options}
    job(source, Path("unused"), **arguments).run(lambda: parser)
    return parser.report


def start(source: Path, out: Path | str, longest: float = 0.02, **options: Any) -> BaseProcess:
    """Starts a job in a process."""
    return begin(work, source, out, longest, **options)


def outputs(out: Path | str) -> dict[str, bytes]:
    """All files that a run is for, and its records but for times."""
    store = open_store(out)
    names = sorted(info.name for info in store.names() if not info.name.startswith(".sooner/"))
    contents = {name: store.read(name) for name in names}
    lines = [json.loads(line) for line in contents[NAME].splitlines()]
    for line in lines:
        del line["seconds"]
    contents[NAME] = json.dumps(lines, indent=1).encode()
    return contents


def left_over(out: Path) -> list[str]:
    """Files that are neither results nor what these are derived from."""
    known = (".sooner/pages/", ".sooner/documents/")
    names = [path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()]
    return [
        name
        for name in names
        if name.endswith(".part") or (name.startswith(".sooner/") and not name.startswith(known))
    ]
