"""Parquet: a row a page, failed ones too, with its regions as a list of structs.

The schema is the same for every document and every version of a minor release: columns are added
at the end, never renamed.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..result import FAILED, ParsedPage

TIMES = ("drafter", "wait", "processor", "vision", "prefill", "decode", "regions", "e2e")

"""Keys of `ParsedPage.seconds`, which see."""

ROWS = 256

"""Pages of a row group, which is what a reader holds at a time."""


INT, FLOAT, TEXT = pa.int32(), pa.float32(), pa.string()

REGION = {
    "order": INT, "label": TEXT, "level": INT, "text": TEXT, "bbox": pa.list_(FLOAT),
    "bbox_1000": pa.list_(INT), "acceptance": FLOAT, "picture": TEXT,
}  # fmt: skip

SCHEMA = pa.schema(
    {
        "document": TEXT, "page": INT, "status": TEXT, "reason": TEXT, "mode": TEXT,
        "drafter": TEXT, "markdown": TEXT, "raw": TEXT, "form": TEXT,
        "regions": pa.list_(pa.struct(REGION)), "width": INT, "height": INT,
        "input_hash": TEXT, "settings_hash": TEXT, "truncated": TEXT, "repaired": pa.bool_(),
        "notes": pa.list_(TEXT), "tokens": INT, "steps": INT, "mean_acceptance_length": FLOAT,
        "aal": FLOAT, "tokens_per_second": FLOAT,
        "seconds": pa.struct(dict.fromkeys(TIMES, FLOAT)),
    }
)  # fmt: skip
"""Columns and their types; `null` stands for what is unknown."""


def document(pages: Iterable[ParsedPage], info: dict[str, Any]) -> Iterator[bytes]:
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, SCHEMA) as writer:
        left = _rows(pages, info)
        while rows := list(islice(left, ROWS)):
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    yield buffer.getvalue()


def _rows(pages: Iterable[ParsedPage], info: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In the order of pages; what failed is told by number and reason alone."""
    failed = sorted(info["failed"], key=lambda entry: entry["page"])
    for parsed in pages:
        while failed and failed[0]["page"] < parsed.number:
            yield _failed(failed.pop(0), info)
        yield _row(parsed, info)
    for entry in failed:
        yield _failed(entry, info)


def _failed(entry: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
    return {**_shared(info), "page": entry["page"], "status": FAILED, "reason": entry["reason"]}


def _shared(info: dict[str, Any]) -> dict[str, Any]:
    return {
        "document": info["source"],
        "input_hash": info["input_hash"],
        "settings_hash": info["settings_hash"],
    }


def _row(parsed: ParsedPage, info: dict[str, Any]) -> dict[str, Any]:
    return {
        **_shared(info),
        **parsed.summary(),
        "page": parsed.number,
        "markdown": parsed.markdown,
        "raw": parsed.raw,
        "form": parsed.form,
        "regions": [asdict(region) for region in parsed.regions],
        "width": parsed.size[0],
        "height": parsed.size[1],
        "seconds": {name: parsed.seconds.get(name) for name in TIMES},
    }
