"""Files are whole or not there; lines that a crash cut off cost only themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sooner.io import JsonLines, replacing, to_line, write_json


def test_a_file_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_json({"a": 1}, path)
    with pytest.raises(TypeError):
        write_json({"a": object()}, path)
    with pytest.raises(IsADirectoryError), replacing(path) as part:
        part.write_bytes(tmp_path.read_bytes())
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]


def test_lines_survive_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = JsonLines(path)
    assert (first.records, first.is_torn) == ([], False)
    first.add({"n": 1, "text": "grün\nzwei"})
    with open(path, "ab") as file:
        file.write(b'[3]\n{"n": 2, "te')
    again = JsonLines(path)
    assert again.records == [{"n": 1, "text": "grün\nzwei"}]
    assert again.is_torn
    again.add({"n": 3})
    assert not again.is_torn
    assert [record["n"] for record in JsonLines(path).records] == [1, 3]
    again.rewrite([to_line({"n": 4})])
    again.add({"n": 5})
    assert path.read_bytes() == b'{"n": 4}\n{"n": 5}\n'


def test_a_line_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = JsonLines(tmp_path / "a.jsonl")
    lines.add({"n": 1})

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            lines.add({"n": 2})
    assert lines.path.read_bytes() == b'{"n": 1}\n'
