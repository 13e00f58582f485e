"""Results are small files that say what `json` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sooner_lab.bench.result_file import ResultFile, write_result

RESULT: dict[str, Any] = {
    "bench": "made up",
    "settings": {"seed": 1, "sizes": [[20, 16], [4, 8]], "text": 'a "quoted"\nline ±'},
    "rows": [{"arm": "plain", "times": [0.1, 1e-7]}, {"arm": "hsd", "times": []}],
    "empty": {},
    "none": None,
    "points": {2: 0.5, "three": float("inf")},
}


def test_it_reads_as_indented_json_does(tmp_path: Path) -> None:
    write_result(RESULT, tmp_path / "result.json")
    text = (tmp_path / "result.json").read_text()
    assert json.loads(text) == json.loads(json.dumps(RESULT))
    assert list(json.loads(text)) == list(RESULT)
    assert text.endswith("}\n")


def test_each_row_has_a_line(tmp_path: Path) -> None:
    write_result(RESULT, tmp_path / "result.json")
    lines = (tmp_path / "result.json").read_text().splitlines()
    assert '{"arm":"plain","times":[0.1,1e-07]},' in lines
    assert '"sizes":[[20,16],[4,8]],' in lines


def test_what_json_does_not_know_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_result({"path": tmp_path}, tmp_path / "result.json")
    assert not list(tmp_path.iterdir())


def test_retired_parts_of_the_same_model_stay_with_their_run(tmp_path: Path) -> None:
    path = tmp_path / "act.json"
    run = {"bench": "act", "settings": {"repeats": 3}, "provenance": {"git": "new"}}
    before = {
        **run, "model": "robot", "provenance": {"git": "old"}, "arms": [{"arm": 1}],
        "trees": [{"tree": 2}],
    }  # fmt: skip
    write_result(before, path)
    file = ResultFile(path, "act")
    for parts in ({"model": ""}, {"model": "robot", "arms": [{"arm": 3}]}):
        file({**run, **parts})
    result = json.loads(path.read_text())
    assert result["trees"] == [{"tree": 2}]
    assert result["arms"] == [{"arm": 3}]
    kept = {"parts": ["trees"], "settings": {"repeats": 3}, "provenance": {"git": "old"}}
    assert result["kept"] == [kept]
    ResultFile(path, "act")({**run, "model": "another robot"})
    assert "trees" not in json.loads(path.read_text())


def test_a_retired_part_may_lie_in_another_part(tmp_path: Path) -> None:
    path = tmp_path / "imagine.json"
    about = {"bench": "imagine", "model": "m", "provenance": {}}
    write_result({**about, "image": {"grid": 8, "quality": [{"score": 1}]}}, path)
    ResultFile(path, "imagine")({**about, "image": {"grid": 16}})
    assert json.loads(path.read_text())["image"] == {"grid": 16, "quality": [{"score": 1}]}
