"""Files as hub repositories hold them: tables, archives, parquet."""

from __future__ import annotations

import json
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest


def put(path: Path, content: bytes | Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def fake_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for the package where it is not installed: parquet files hold JSON."""

    class Dataset(list):
        @classmethod
        def from_parquet(cls, path: str) -> Dataset:
            return cls(json.loads(Path(path).read_text()))

        def to_list(self) -> list:
            return list(self)

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(Dataset=Dataset))


def parquet(path: Path, rows: list[dict[str, Any]], real: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not real:
        return put(path, rows)
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow.Table.from_pylist(rows), path)
    return path
