"""From documents to rows of pages: a list in the store, read and planned as rows are asked for."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..documents import Document, fetched
from ..storage import ObjectError, Store, open_store
from ..tasks.parse.finishing import Finisher
from ..tasks.parse.plan import DocumentPlanner, DocumentWork
from ..tasks.parse.sharing import ATTEMPTS, Claims
from .rows import Row, document_at

HOME = ".sooner/runs"

AT_ONCE = 16
"""Documents that are planned by one task, so that a task is worth its overhead."""


def write_list(store: Store, documents: Iterable[Document]) -> str:
    """Put a run's documents into its store, so that no process has to keep them.

    Returns:
        The name of the list; whoever made it removes it.

    Raises:
        StorageError: it can't be written.
    """
    name = f"{HOME}/{uuid.uuid4().hex}.jsonl"
    store.write(name, (_line(*entry) for entry in enumerate(documents)))
    return name


def write_rest(store: Store, name: str, is_done: Sequence[int]) -> None:
    """Leave those documents of a list that are not done.

    Args:
        is_done: by their numbers.

    Raises:
        StorageError: the list can't be read or written.
    """
    lines = store.read(name).splitlines(keepends=True)
    store.write(name, (line for line in lines if not is_done[json.loads(line)[0]]))


def _line(number: int, document: Document) -> bytes:
    entry = [number, document.source, document.place.as_posix()]
    return json.dumps(entry).encode() + b"\n"


def read_list(row: Row) -> Iterator[Row]:
    """Yields the documents of a list, some to a row.

    Args:
        row: `store`, the folder or URL of the results, and `list`, a name there.

    Raises:
        StorageError: the list can't be read.
    """
    lines = open_store(row["store"]).read(row["list"]).splitlines()
    for start in range(0, len(lines), AT_ONCE):
        yield {"documents": b"\n".join(lines[start : start + AT_ONCE]).decode()}


class PlanRows:
    """What is left to be done of documents: a row a page, and one with counts.

    Args:
        planner: says what is done.
        finisher: writes documents whose pages are there, and whose files are not.
        rows_at_once: rows of one block, and so of one task behind this one.
    """

    def __init__(self, planner: DocumentPlanner, finisher: Finisher, rows_at_once: int = 1) -> None:
        self.planner, self.finisher, self.rows_at_once = planner, finisher, rows_at_once

    def __call__(self, batch: Any) -> Iterator[dict[str, list[Any]]]:
        """Yields rows of the documents of a batch of `read_list`.

        Raises:
            SoonerError: the store of the results can't be read or written.
        """
        rows: list[Row] = []
        for text in batch["documents"]:
            for row in self._rows(str(text).splitlines()):
                rows.append(row)
                if len(rows) >= self.rows_at_once:
                    yield _columns(rows)
                    rows = []
        if rows:
            yield _columns(rows)

    def _rows(self, lines: Sequence[str]) -> Iterator[Row]:
        planner = self.planner
        claims = Claims(planner.records.store, None, ATTEMPTS, planner.fresh)
        try:
            for line in lines:
                number, source, place = json.loads(line)
                try:
                    with fetched(document_at(source, Path(place))) as document:
                        yield from self._rows_of(document, number, claims)
                except ObjectError as error:
                    yield from self._rows_of_failed(source, Path(place), number, str(error))
        finally:
            claims.close()

    def _rows_of(self, document: Document, number: int, claims: Claims) -> Iterator[Row]:
        self.planner.delivery.check(document)
        work = self.planner(document, claims.opening)
        claims.look(work)
        if not work.is_delivered:
            self.planner.manifest.forget(work.place)
        if not work.todo and not work.is_delivered:
            self.finisher(work)
        yield {**_row(work, -1), "told": json.dumps(_counts(work, number))}
        data = json.dumps({"document": number})
        for page in work.left:
            yield {**_row(work, page), "told": data}
        if work.todo > len(work.left):  # what is wrong with the document as a whole
            yield {**_row(work, 0), "told": data}

    def _rows_of_failed(self, source: str, place: Path, number: int, problem: str) -> Iterator[Row]:
        """Yields rows of a document whose files can't be written."""
        document, settings_hash = document_at(source, place), self.planner.settings_hash
        work = DocumentWork.unwritable(document, settings_hash, problem)
        yield {**_row(work, -1), "told": json.dumps(_counts(work, number))}
        yield {**_row(work, 0), "told": json.dumps({"document": number})}


def _columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _counts(work: DocumentWork, number: int) -> dict[str, int]:
    return {
        "document": number, "todo": work.todo, "before": work.done, "aside": work.aside,
        "of": work.of,
    }  # fmt: skip


def _row(work: DocumentWork, page: int) -> Row:
    return {
        # Columns are Unicode, which names of files need not be.
        "path": work.document.source.encode(errors="backslashreplace").decode(),
        "place": work.place.encode(errors="backslashreplace").decode(),
        "hash": work.input_hash,
        "page": page,
        "problem": work.problem,
    }
