"""`Write`: puts parsed pages into a folder of results."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..documents import BrokenPage
from ..storage import ObjectError
from ..tasks.identity import sha256
from ..tasks.parse.delivery import Delivery, line_of
from ..tasks.parse.finishing import Finisher
from ..tasks.parse.manifest import Line, Manifest
from ..tasks.parse.page_records import PageRecord, PageRecords, PageTask
from ..tasks.parse.plan import DocumentWork, Intake
from ..tasks.parse.result import FAILED
from .rows import (
    Batch,
    Row,
    RowReader,
    batch_of,
    document_at,
    is_page,
    parsed_of,
    place_of,
    rows_of,
)

SETTINGS = "map_batches"
"""Stands for the hash of settings where the caller names none."""


class WriteStage:
    """Writes pages that `Parser` parsed, in Ray Data's `map_batches`.

        >>> written = parsed.map_batches(
        ...     Write, fn_constructor_kwargs={"output": "out"}, num_cpus=0.1, concurrency=1
        ... )

    Each page becomes an object of its own and its files; with a document's last page its own files
    are written as well. Twice is harmless and gives the same bytes. Rows lose `parsed` and
    `markdown` and get `line`.

    Args:
        output: folder or URL; or a `Delivery`, which says more than formats and overlay.
        formats: files of each page and document.
        overlay: write a picture of each page's regions.
        intake: how pages are read, for those pictures.
        settings_hash: tells pages of these settings from others' in the same folder.
        fresh: what was known of a page before is forgotten.
        drafts_only: no model verified anything, so what one verified before is shown.
        finishes: write documents; `RayJob` does that apart.

    Raises:
        SoonerError: an unknown format, or a folder that can't be written.
    """

    def __init__(
        self,
        output: Path | str | Delivery,
        formats: tuple[str, ...] = ("md", "json"),
        overlay: bool = True,
        intake: Intake | None = None,
        settings_hash: str = SETTINGS,
        fresh: bool = False,
        drafts_only: bool = False,
        finishes: bool = True,
    ) -> None:
        if not isinstance(output, Delivery):
            output = Delivery(output, formats, overlay)
        self.delivery = output
        intake, self.settings_hash = intake or Intake(), settings_hash
        self.read = RowReader(intake)
        self.records = PageRecords(self.delivery.store)
        self.manifest = Manifest(self.delivery.store)
        self.fresh, self.finishes = fresh, finishes
        self.finisher = Finisher(intake, self.records, self.manifest, self.delivery, drafts_only)

    def __call__(self, batch: Batch) -> dict[str, list[Any]]:
        """Write the pages of a batch.

        Raises:
            SoonerError: a file can't be written.
        """
        return batch_of(map(self._row, rows_of(batch)))

    def _row(self, row: Row) -> Row:
        fields = {name: row[name] for name in row if name not in ("parsed", "markdown", "draft")}
        if not is_page(row):
            return {**fields, "line": ""}
        input_hash = row.get("hash") or sha256(row["path"])
        task = PageTask(
            str(row["path"]), place_of(row).as_posix(), input_hash, self.settings_hash,
            int(row["page"]),
        )  # fmt: skip
        line = self._keep(row, task)
        if self.finishes and line["status"] != FAILED:
            _, failed = finish_document(self.finisher, task, int(row["of"]))
            line = failed or line
        return {**fields, "line": json.dumps(line)}

    def _keep(self, row: Row, task: PageTask) -> Line:
        """Write a page's files, then its object: what is killed in between does it again."""
        parsed, place = parsed_of(row), Path(task.place)
        files, drawn = list[Path](), dict[str, str]()
        if parsed.status != FAILED:
            began = time.perf_counter()
            is_drawn = self.delivery.pictures or self.delivery.figures
            page = self.read(row) if is_drawn else None
            if isinstance(page, BrokenPage):
                parsed = replace(parsed, status=FAILED, reason=page.reason)
            else:
                parsed, files, drawn = self.delivery.try_page(place, page, parsed)
                took = time.perf_counter() - began
                parsed = replace(parsed, seconds={**parsed.seconds, "write": took})
        record = PageRecord(
            parsed, task.input_hash, task.settings_hash, drawn, bool(row.get("aside"))
        )
        record = self.records.keep(record, self.fresh)
        return line_of(task, record, files, self.delivery.choices)


def finish_document(
    finisher: Finisher, task: PageTask, of: int, written: Collection[int] = ()
) -> tuple[bool, Line | None]:
    """Write a document's files, if no page of it is still to come.

    Args:
        finisher: for the results' folder.
        task: any of its pages.
        of: pages that it has.
        written: those whose files are known to be there.

    Returns:
        Whether none was to come; and the line of a failure where a file can't be written.

    Raises:
        StorageError: nothing more can be written, of whatever document.
    """
    work = DocumentWork(
        document_at(task.path, Path(task.place)),
        task.input_hash,
        task.settings_hash,
        of=of,
        numbers=finisher.intake.pages.select(of),
        written={*written},
    )
    try:
        return finisher(work), None
    except ObjectError as error:
        return True, finisher.fail(work, str(error))
