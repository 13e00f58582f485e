"""Records of a benchmark's tables: JSON and CSV as they are, parquet through `datasets`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError

from .schemas import Record, Schema


def read_tables(schema: Schema, root: Path) -> Iterator[tuple[Path, Record]]:
    """Every record of the benchmark under `root`, with the table that it stands in.

    Raises:
        SoonerError: no table, a damaged one, or parquet without `sooner-lab[bench]`.
    """
    for path in find_tables(schema, root):
        for record in _READERS[path.suffix](path):
            yield path, record


def find_tables(schema: Schema, root: Path) -> list[Path]:
    """The tables under `root`: all files of the first pattern that matches any.

    Raises:
        SoonerError: none.
    """
    for pattern in schema.tables:
        if tables := sorted(root.glob(f"**/{pattern}")):
            return tables
    raise SoonerError(
        f"{schema.name}: '{root}' has no table {' or '.join(schema.tables)}; give a folder laid "
        f"out like the hub's {schema.hub}"
    )


def _json(path: Path) -> list[Record]:
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SoonerError(f"'{path}' is not JSON ({error}); fetch it again") from error
    if isinstance(records, dict):
        records = [row for video, entry in records.items() for row in _of_video(video, entry)]
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise SoonerError(f"'{path}' is not a list of records; is it another dataset?")
    return records


def _of_video(video: str, entry: Any) -> list[Any]:
    """The questions under one video's name, in PerceptionTest's own layout."""
    questions = entry.get("mc_question") if isinstance(entry, dict) else None
    if not isinstance(questions, list):
        return [None]
    return [{"video_name": video, **question} for question in questions]


def _csv(path: Path) -> list[Record]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_parquet(path: Path) -> list[Record]:
    """Every record of a parquet table.

    Raises:
        SoonerError: `sooner-lab[bench]` is not installed.
    """
    reader = _datasets(path)
    return reader.Dataset.from_parquet(str(path)).to_list()


def _datasets(path: Path) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise SoonerError(
            f"'{path}' is a parquet table, which needs the package 'datasets'; install "
            "sooner-lab[bench]"
        ) from error
    return datasets


_READERS: dict[str, Callable[[Path], Sequence[Record]]] = {
    ".parquet": read_parquet,
    ".json": _json,
    ".csv": _csv,
}
