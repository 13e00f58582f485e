"""Machines that differ are refused before a model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray")

from sooner.errors import SoonerError
from sooner.ray.nodes import GONE, NodeQuestion, asker, compare


def test_a_machine_tells_versions_paths_and_model(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (tmp_path / "probe").write_text("token")
    question = NodeQuestion(
        [str(tmp_path), str(tmp_path / "probe"), str(tmp_path / "missing")],
        (str(tmp_path / "probe"), "token"),
        str(model),
        ("torch", "no-such-package"),
    )
    told = asker()(vars(question))
    assert told["no-such-package"] == "not installed"
    assert told[f"'{tmp_path}'"] == "a folder"
    assert told[f"'{tmp_path / 'probe'}'"] == "a file of 5 bytes"
    assert told[f"'{tmp_path / 'missing'}'"] == GONE
    assert told["output"] == "there"
    (model / "config.json").write_text("[]")
    assert asker()(vars(question)) != told
    other = {**vars(question), "probe": (str(tmp_path / "probe"), "another")}
    assert asker()(other)["output"] == GONE


HERE = {"Python": "3.11.7", "torch": "2.11", "'/data'": "a folder", "output": "there"}


@pytest.mark.parametrize(
    ("differs", "told"),
    [
        ({"torch": "2.10"}, "node 'b:1' has torch 2.10, and this one has 2.11; make them the same"),
        ({"'/data'": GONE}, "node 'b:1' can't see '/data'; put it where every node sees it"),
        ({"output": GONE}, "node 'b:1' can't see the output folder; put it"),
    ],
)
def test_a_difference_names_the_node_and_both_values(differs: dict[str, str], told: str) -> None:
    compare(HERE, {"a:1": HERE})
    with pytest.raises(SoonerError, match=told):
        compare(HERE, {"a:1": HERE, "b:1": {**HERE, **differs}})
