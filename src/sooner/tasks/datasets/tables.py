"""Records of a benchmark's tables: JSON as it is, parquet through the optional `datasets`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import SoonerError
from .schemas import Record, Schema


def read_tables(schema: Schema, root: Path) -> Iterator[tuple[Path, Record]]:
    """Every record of the benchmark under `root`, with the table that it stands in.

    Raises:
        SoonerError: no table, a damaged one, or parquet without `sooner[bench]`.
    """
    for path in find_tables(schema, root):
        for record in read_parquet(path) if path.suffix == ".parquet" else _json(path):
            yield path, record


def find_tables(schema: Schema, root: Path) -> list[Path]:
    """The tables under `root`: all files of the first pattern that matches any.

    Raises:
        SoonerError: none.
    """
    for pattern in schema.tables:
        if found := sorted(root.glob(f"**/{pattern}")):
            return found
    raise SoonerError(
        f"{schema.name}: '{root}' has no table {' or '.join(schema.tables)}; give a folder laid "
        f"out like the hub's {schema.hub}"
    )


def _json(path: Path) -> list[Record]:
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SoonerError(f"'{path}' is not JSON ({error}); fetch it again") from error
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise SoonerError(f"'{path}' is not a list of records; is it another dataset?")
    return records


def read_parquet(path: Path) -> list[Record]:
    """Every record of a parquet table.

    Raises:
        SoonerError: `sooner[bench]` is not installed.
    """
    reader = _datasets(path)
    return reader.Dataset.from_parquet(str(path)).to_list()


def _datasets(path: Path) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise SoonerError(
            f"'{path}' is a parquet table, which needs the package 'datasets'; install "
            "sooner[bench]"
        ) from error
    return datasets
