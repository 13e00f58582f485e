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


def schema() -> pa.Schema:
    """Returns columns and their types; `null` stands for what is unknown."""
    region = pa.struct(
        [
            ("order", pa.int32()),
            ("label", pa.string()),
            ("level", pa.int32()),
            ("text", pa.string()),
            ("bbox", pa.list_(pa.float32())),
            ("bbox_1000", pa.list_(pa.int32())),
            ("acceptance", pa.float32()),
            ("picture", pa.string()),
        ]
    )
    return pa.schema(
        [
            ("document", pa.string()),
            ("page", pa.int32()),
            ("status", pa.string()),
            ("reason", pa.string()),
            ("mode", pa.string()),
            ("drafter", pa.string()),
            ("markdown", pa.string()),
            ("raw", pa.string()),
            ("form", pa.string()),
            ("regions", pa.list_(region)),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("input_hash", pa.string()),
            ("settings_hash", pa.string()),
            ("truncated", pa.string()),
            ("repaired", pa.bool_()),
            ("notes", pa.list_(pa.string())),
            ("tokens", pa.int32()),
            ("steps", pa.int32()),
            ("mean_acceptance_length", pa.float32()),
            ("aal", pa.float32()),
            ("tokens_per_second", pa.float32()),
            ("seconds", pa.struct([(name, pa.float32()) for name in TIMES])),
        ]
    )


def document(pages: Iterable[ParsedPage], info: dict[str, Any]) -> Iterator[bytes]:
    buffer, columns = io.BytesIO(), schema()
    with pq.ParquetWriter(buffer, columns) as writer:
        left = _rows(pages, info)
        while rows := list(islice(left, ROWS)):
            writer.write_table(pa.Table.from_pylist(rows, columns))
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
