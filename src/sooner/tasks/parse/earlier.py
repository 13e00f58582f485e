"""Folders of sooner 0.2, whose pages were files and lines of a manifest, go on as objects."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from ...errors import SoonerError
from ...storage import Store
from .formats import render_page
from .manifest import EARLIER, NAME, Line, LooseLines
from .page_records import HOME, PageRecord, PageRecords, digest
from .result import FAILED, ParsedPage

MORE = ("status", "reason", "mode", "drafter", "truncated", "repaired", "notes", "seconds")
"""What a line says of a page whose JSON was not asked for."""


class EarlierPages:
    """Pages of a folder that an earlier version wrote; none where there is no such folder.

    Args:
        store: of the results.

    Raises:
        StorageError: the store can't be read or written.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.records = store, PageRecords(store)
        path = store.local_path(NAME)
        self._lines = LooseLines(path if self._is_earlier() else None)

    def _is_earlier(self) -> bool:
        """Returns whether there are lines without objects; said by an object from the first
        run on.
        """
        path = self.store.local_path(NAME)
        if path is None or not path.is_file() or not path.stat().st_size:
            return False
        if self.store.exists(EARLIER):
            return True
        if next(iter(self.store.names(f"{HOME}/")), None) is not None:
            return False
        self.store.write(EARLIER, b"")
        return True

    def keep(self, place: str) -> None:
        """Make objects of a document's pages, those apart that are objects by now.

        Raises:
            StorageError: one can't be read or written.
        """
        for line in self._lines.of(place):
            record = self._record(line) if line["status"] != FAILED and line["page"] > 0 else None
            if record is not None:
                self.records.create(record)

    def _record(self, line: Line) -> PageRecord | None:
        """A page as its files have it; `None` if they do not have its text."""
        files = {PurePosixPath(name).suffix[1:]: str(name) for name in line.get("files", ())}
        there = {suffix: self._read(name) for suffix, name in files.items()}
        page = _of_json(there.get("json")) or _of_markdown(line, there.get("md"))
        if page is None or any(data is None for data in there.values()):
            return None
        as_html = replace(page, form="html")
        if there.get("html") == render_page("html", as_html):  # as the model itself wrote it
            page = as_html
        drawn = there.get("png")
        pictures = {} if drawn is None else {"png": digest(drawn)}
        page = replace(page, number=line["page"])
        return PageRecord(page, line["input_hash"], line["settings_hash"], pictures)

    def _read(self, name: str) -> bytes | None:
        try:
            return self.store.read(name)
        except SoonerError:
            return None


def _of_json(data: bytes | None) -> ParsedPage | None:
    try:
        return None if data is None else ParsedPage.from_json(json.loads(data))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _of_markdown(line: Line, data: bytes | None) -> ParsedPage | None:
    if data is None:
        return None
    text = data.decode(errors="replace")
    fields: dict[str, Any] = {name: line[name] for name in MORE if name in line}
    whole = {"source": "", "number": line["page"], "markdown": text, "raw": text, **fields}
    return ParsedPage.from_json(whole)
