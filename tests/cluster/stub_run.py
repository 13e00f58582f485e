"""A run of `RayJob` with a parser that waits; started by tests as a process of its own.

    python stub_run.py DOCUMENTS OUT ADDRESS SECONDS [KILLER]

A page's text is a hash of its pixels. A document that is called KILLER ends the process that parses
it. At the end counts lie in `counts.json`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import signal
import sys
from pathlib import Path

from sooner.documents import Page, PageDraft, find_documents
from sooner.ray import RayJob
from sooner.tasks.parse.delivery import Delivery
from sooner.tasks.parse.output import ParseOutput
from sooner.tasks.parse.result import ParsedPage

SETTINGS = "0123456789abcdef"


class Waiting:
    """A parser of many pages at once, each of which takes some seconds."""

    pages_in_flight = 2

    def __init__(self, seconds: float, killer: str) -> None:
        self.seconds, self.killer = seconds, killer

    async def parse(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        await asyncio.sleep(self.seconds)
        if page.source.name == self.killer:
            os.kill(os.getpid(), signal.SIGKILL)
        text = hashlib.sha256(page.picture.tobytes()).hexdigest()
        return ParsedPage(page.source.name, page.number, markdown=f"{text}\n", raw=text)

    def close(self) -> None:
        pass


def make_job(documents: str, out: str, address: str, seconds: float, killer: str = "") -> RayJob:
    return RayJob(
        documents=find_documents([documents]),
        inputs=[documents],
        output=ParseOutput(Delivery(out, ("md", "json", "html")), SETTINGS),
        address=address,
        parsers=2,
        pages_in_flight=2,
        parser={"drafter": "none", "load": lambda: Waiting(seconds, killer)},
    )


if __name__ == "__main__":
    documents, out, address, seconds, *rest = sys.argv[1:]
    job = make_job(documents, out, address, float(seconds), *rest)
    done = job.run()
    Path(out, "counts.json").write_text(json.dumps(dataclasses.asdict(done)))
