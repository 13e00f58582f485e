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
from sooner.sparse.patterns import AShape, Dense, Grid, QBoundary, VerticalSlash
from sooner.sparse.table import HeadEntry, PatternTable

LAYERS, HEADS = 3, 4  # of every tiny model


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


def minference(path: Path, layers: int = LAYERS, heads: int = HEADS, **first: Any) -> Path:
    """A file as MInference publishes them; `first` are entries of the first layer."""
    layer = {str(head): ["vertical_and_slash", 500, 700, 0.9] for head in range(heads)}
    path.write_text(json.dumps([{**layer, **first}, *[layer] * (layers - 1)]))
    return path


def test_minference_s_file_is_imported(adapter: Adapter, tmp_path: Path) -> None:
    streaming, blocks = ["stream_llm", 128, 896, 0.8], ["block_sparse", 1000, 32, 0.7]
    path = minference(tmp_path / "theirs.json", **{"1": streaming, "2": blocks})
    table = PatternTable.load(path, adapter)
    patterns = [head.pattern for head in table.layers[0]]
    usual = VerticalSlash(500, 700)
    assert patterns == [usual, AShape(128, 896), Dense(), usual]
    assert table.layers[2][3].recall == 0.9
    assert table.about["notes"] == ["1 block_sparse heads have no counterpart and run dense"]


def test_minference_s_file_of_another_size_or_kind_is_refused(
    adapter: Adapter, tmp_path: Path
) -> None:
    with pytest.raises(SoonerError, match="5 layers of 4 heads"):
        PatternTable.from_minference(minference(tmp_path / "a.json", layers=5), adapter)
    odd = minference(tmp_path / "b.json", **{"0": ["vertical_slash", 1, 2, 1.0]})
    with pytest.raises(SoonerError, match=r"layer 0: .*did you mean 'vertical_and_slash'"):
        PatternTable.from_minference(odd, adapter)
    with pytest.raises(SoonerError, match="from_minference"):
        PatternTable.load(odd)
