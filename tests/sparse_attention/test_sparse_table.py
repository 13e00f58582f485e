"""Pattern files: what is written is read again; what does not fit is refused with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tiny
from sooner.errors import SoonerError
from sooner.models import Adapter, adapt
from sooner.sparse.patterns import AShape, Grid, QBoundary, VerticalSlash
from sooner.sparse.table import HeadEntry, PatternTable
from zoo.species import model_of
from zoo.zoo import ZOO

HEADS = 4  # of every tiny model


@pytest.fixture
def adapter() -> Adapter:
    return adapt(tiny.model("qwen2_5_vl"))


@pytest.fixture
def table(adapter: Adapter) -> PatternTable:
    grid = QBoundary({"video": Grid("frame", hline=False), "text": VerticalSlash(10, 20)})
    first = (HeadEntry(grid, score=0.01, recall=0.97, cost=0.2), *(HeadEntry(),) * (HEADS - 1))
    plain = PatternTable.uniform(adapter, AShape(16, 64), dense_below=4096)
    about = {"device": "cpu", "versions": {"torch": "2"}}
    layers = (first, *plain.layers[1:])
    return replace(plain, layers=layers, frame_tokens=16, samples=("ab" * 32,), about=about)


def changed(table: PatternTable, path: Path, **values: Any) -> Path:
    """A file with some of its keys changed."""
    path.write_text(json.dumps({**table.to_dict(), **values}))
    return path


def test_a_file_is_read_as_it_was_written(
    table: PatternTable, adapter: Adapter, tmp_path: Path
) -> None:
    table.save(tmp_path / "patterns.json")
    assert PatternTable.load(tmp_path / "patterns.json", adapter) == table


def test_a_file_names_schema_model_and_every_dense_head(
    table: PatternTable, tmp_path: Path
) -> None:
    table.save(tmp_path / "patterns.json")
    data = json.loads((tmp_path / "patterns.json").read_text())
    assert (data["kind"], data["schema"]) == ("sooner.patterns", 1)
    assert data["model"] == "Qwen2_5_VLForConditionalGeneration"
    assert [head["pattern"] for head in data["layers"][0]] == ["q-boundary", *["dense"] * 3]
    assert data["layers"][0][0]["recall"] == 0.97


def test_layers_of_two_shapes_have_a_number_each() -> None:
    """As Gemma 4's, whose config refuses to name a single number."""
    adapter = adapt(model_of(ZOO["gemma4"]))
    table = PatternTable.uniform(adapter, AShape(8, 64))
    assert "kv_heads=2 head_dim=8,16 " in table.fingerprint
    table.check(adapter)


def test_another_number_of_layers_or_heads_is_refused(
    table: PatternTable, adapter: Adapter
) -> None:
    with pytest.raises(SoonerError, match=r"2 layers of 4 heads, but .* has 3 of 4"):
        replace(table, layers=table.layers[:2]).check(adapter)
    with pytest.raises(SoonerError, match="3 layers of 3 heads"):
        replace(table, layers=tuple(layer[:3] for layer in table.layers)).check(adapter)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"schema": 2}, "schema 2, this version reads 1"),
        ({"kind": "other"}, "no pattern file"),
        ({"layers": [[{"pattern": "gird"}]]}, r"layer 0, head 0: .*did you mean 'grid'"),
        ({"layers": [[{"pattern": "grid", "stride": -1}]]}, "stride is -1"),
        ({"layers": [[{"pattern": "dense", "recall": "high"}]]}, "recall is 'high'"),
        ({"layers": [{"pattern": "dense"}]}, "layer 0 is no list"),
        ({"layers": 5}, "not iterable"),
        ({"dense_below": -5}, "dense_below is -5"),
        ({"frames": 16}, "unknown key 'frames'"),
    ],
)
def test_a_broken_file_is_refused_in_a_line(
    table: PatternTable, tmp_path: Path, values: dict, words: str
) -> None:
    with pytest.raises(SoonerError, match=words) as refused:
        PatternTable.load(changed(table, tmp_path / "broken.json", **values))
    assert "broken.json" in str(refused.value)
    assert "\n" not in str(refused.value)
