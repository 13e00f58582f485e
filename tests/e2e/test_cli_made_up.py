"""A bundled miniature says of others' input that its words mean nothing, on the console and in
the JSON; of its own samples it says nothing of the kind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from commands import Run, records
from sooner import miniatures
from sooner.miniatures import MADE_UP
from tasks.videos import write

pytestmark = pytest.mark.slow


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if MADE_UP in line]


def is_noted(record: dict[str, Any]) -> bool:
    return any(MADE_UP in note for note in record["notes"])


def test_caption(run: Run, tmp_path: Path) -> None:
    mine = shutil.copy(miniatures.find("video").sample, tmp_path / "mine.mp4")
    other = write(tmp_path / "other.mp4", frames=8)
    output = tmp_path / "out.jsonl"
    done = run("caption", mine, other, "--max-new-tokens", 8, "-o", output)
    assert [is_noted(record) for record in records(output)] == [False, True]
    (line,) = lines(done.err)
    assert line.strip().startswith("the bundled video miniature")
    assert line.endswith("name a model with --model")


@pytest.mark.parametrize("prompt", [None, "a horse on the moon"])
def test_imagine(run: Run, tmp_path: Path, prompt: str | None) -> None:
    arguments = ["--sample"] if prompt is None else [prompt]
    done = run("imagine", *arguments, "-o", tmp_path / "out.png", "--seed", 1)
    assert done.code == 0
    assert len(lines(done.err)) == (prompt is not None)
    with Image.open(tmp_path / "out.png") as picture:
        notes = json.loads(picture.info.get("notes", "[]"))
    assert is_noted({"notes": notes}) == (prompt is not None)


def test_act(run: Run, tmp_path: Path) -> None:
    small = miniatures.find("robot")
    mine = run("act", "once", small.sample, small.prompt)
    assert json.loads(mine.out)["notes"] == lines(mine.err) == []
    Image.new("RGB", (224, 224), "grey").save(tmp_path / "desk.png")
    other = run("act", "once", tmp_path / "desk.png", small.prompt)
    assert is_noted(json.loads(other.out))
    assert len(lines(other.err)) == 1


def test_the_robot_s_places_are_those_that_it_learnt_from() -> None:
    from sooner_lab.worlds.robot.questions import NAMES

    small = miniatures.find("robot")
    assert set(small.places) == set(NAMES)
    assert small.foreign(*NAMES) == []
    assert small.foreign("reach", "window-open")


def test_parse(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("reportlab")
    from documents import layouts

    (tmp_path / "in").mkdir()
    for name in ("one.pdf", "two.pdf"):
        layouts.tight(tmp_path / "in" / name)
    out = tmp_path / "out"
    how = ["--model", "miniature", "--max-new-tokens", 4, "--stages", "page"]
    done = run("parse", tmp_path / "in", "-o", out, *how)
    assert [is_noted(record) for record in records(out)] == [True, True]
    page = json.loads((out / "one.pdf" / "page-0001.json").read_text())
    assert is_noted(page)
    assert len(lines(done.err)) == 1  # once for the run


def test_parse_of_the_sample(run: Run, tmp_path: Path) -> None:
    done = run("parse", "--sample", "-o", tmp_path / "out", "--max-new-tokens", 4)
    (record,) = records(tmp_path / "out")
    assert record["status"] != "DRAFT"
    assert not is_noted(record)
    assert lines(done.err) == []
