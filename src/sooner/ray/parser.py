"""`Parser`: the way of a page on Ray, many at once over one continuous engine an actor.

Rows between stages never hold pixels; a stage passes columns on that it does not know:

| column | made by | what |
|---|---|---|
| `path` | you | file of the document, the same on every machine, or its URL |
| `page` | you | number from 1; below 0 for no page |
| `place` | you, or left out | name of the document in the results; by default the file's |
| `hash` | the job | of the document's content |
| `counts` | the job | JSON for the driver; goes through as it is |
| `status` | `Parser` | of the page |
| `markdown`, `parsed` | `Parser` alone | text, and JSON of a `ParsedPage` |
| `line` | `Parser` of a job | JSON of the page's line in the manifest |
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import DEVICE_FAULT, SoonerError
from ..tasks.parse.delivery import PageTask
from ..tasks.parse.drafters import TIMEOUT, guard, make_drafter
from ..tasks.parse.output import Intake, ParseOutput
from ..tasks.parse.settings import ParseSettings
from ..tasks.parse.worker import DeviceFaultError, PageWorker

logger = logging.getLogger("sooner")

IN_FLIGHT = 8
"""Pages under way at once in an actor, by default."""

Row = dict[str, Any]
Batch = Mapping[str, Any]
"""Columns of a batch, each a sequence of as many values."""


def rows_of(batch: Batch) -> Iterator[Row]:
    """Yields the rows of a batch, values as Python's own."""
    names = list(batch)
    for values in zip(*(batch[name] for name in names), strict=True):
        plain = (value.item() if hasattr(value, "item") else value for value in values)
        yield dict(zip(names, plain, strict=True))


def batch_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Returns rows of the same columns as a batch."""
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


class Parser:
    """Parses pages in Ray Data's `map_batches`: an async generator over one engine an actor.

    A page is read, drafted, parsed and, with an `output`, written. Rows have `path` and `page`;
    they get `status`, and `markdown` and `parsed` or, with an `output`, `line`.
    Batches that are under way at once in an actor share the rounds of its engine, whatever their
    documents. A batch of one page ends with its page; give an actor several of them with
    `ray.data.ActorPoolStrategy(size=..., max_tasks_in_flight_per_actor=8,
    max_concurrent_calls_per_actor=8)`. What goes wrong with a page is a row with status FAILED.
    Where the accelerator fails, the process ends, and Ray starts another one.

    Args:
        model: hub id or folder; `None` takes the drafts as they are (status DRAFT).
        settings: how.
        intake: how pages are read; that of `output` where there is one.
        pages_in_flight: pages under way at once.
        drafter: `auto` (a PDF's own text where it is good, else OCR), `ocr`, `text-layer`,
            `saved:FILE`, `text:FILE`, or `none`. OCR runs in a process of its own, which is killed
            where it hangs.
        drafter_options: further arguments of `make_drafter`, such as a language.
        timeout: seconds for a page's draft.
        output: takes the pages; it is recorded there that a page was begun, so that one that kills
            its process is set aside.
        device, dtype, trust_remote_code: as `load_parser`.
        threads: of torch on CPUs; by default torch's.
        load: makes another parser than that of `model`, see `PageWorker`.
    """

    def __init__(
        self,
        model: str | None = None,
        settings: ParseSettings | None = None,
        intake: Intake | None = None,
        pages_in_flight: int = IN_FLIGHT,
        *,
        drafter: str = "auto",
        drafter_options: Mapping[str, Any] | None = None,
        timeout: float = TIMEOUT,
        output: ParseOutput | None = None,
        device: str = "auto",
        dtype: str = "auto",
        trust_remote_code: bool = False,
        threads: int | None = None,
        load: Callable[[], Any] | None = None,
    ) -> None:
        self.output = output
        self._error: SoonerError | None = None

        def load_model() -> Any:
            from ..tasks.parse import ConcurrentParser, DraftParser, load_parser

            if model is None:
                return DraftParser()
            from ..methods.threads import Threads

            pair = load_parser(model, device, dtype, trust_remote_code)
            Threads.plan(threads, is_miniature=pair.miniature is not None).apply()
            return ConcurrentParser(pair, settings, pages_in_flight=pages_in_flight)

        try:
            parser = (load or load_model)()
            self.worker = PageWorker(
                intake or (output.intake if output else Intake()), lambda: parser,
                guard(make_drafter(drafter, **(drafter_options or {})), drafter, timeout),
                output=output,
            )  # fmt: skip
        except SoonerError as error:  # an actor that does not come up would be started for ever
            self._error = error

    async def __call__(self, batch: Batch) -> AsyncIterator[dict[str, list[Any]]]:
        """Yields rows of a batch, each as it ends.

        Raises:
            SoonerError: the model can't be loaded, or nothing more can be written.
        """
        if self._error is not None:
            raise self._error
        tasks = [asyncio.ensure_future(self._row(row)) for row in rows_of(batch)]
        try:
            for task in asyncio.as_completed(tasks):
                yield batch_of([await task])
        except DeviceFaultError as error:
            logger.error("%s", error)
            os._exit(DEVICE_FAULT)  # another process takes its place
        finally:
            for item in tasks:
                item.cancel()

    async def _row(self, row: Row) -> Row:
        path, page = str(row["path"]), int(row["page"])
        place = Path(row.get("place") or Path(path).name).as_posix()
        if self.output is None:
            parsed = await self.worker.parsed(PageTask(path, place, "", "", page))
            text = json.dumps(parsed.to_json())
            return {**row, "status": parsed.status, "markdown": parsed.markdown, "parsed": text}
        if page < 0:
            return {**row, "status": ""}
        task = PageTask(path, place, row["hash"], self.output.settings_hash, page)
        line = await self.worker.written(task)
        return {**row, "status": line["status"], "line": json.dumps(line)}
