"""Files are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.io import replacing, write_json


def test_a_file_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.json"
    write_json({"a": 1}, path)
    with pytest.raises(TypeError):
        write_json({"a": object()}, path)
    with pytest.raises(IsADirectoryError), replacing(path) as part:
        part.write_bytes(tmp_path.read_bytes())
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]
