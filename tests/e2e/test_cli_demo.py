"""What `make demo` runs: the bundled models on the bundled clip, as a new user sees it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sooner import miniatures
from sooner.cli.main import main
from sooner_lab.worlds.video import world


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.jsonl"
    with pytest.raises(SystemExit) as left:
        main(["caption", "--sample", "--compare", "-o", str(output)])
    assert not left.value.code
    shown = capsys.readouterr()
    assert "parity: identical" in shown.err
    assert "speed-up: " in shown.err
    record = json.loads(output.read_text())
    assert shown.out.strip() == record["text"]
    assert record["mode"] == "exact"
    assert record["method"] in ("speculative", "parallel")  # whichever is faster here
    assert record["tokens"] >= 150
    assert record["finish"] == "stop"
    assert record["acceptance"] > 1.5
    truth = json.loads(miniatures.find("video").sample.with_suffix(".json").read_text())
    said = world.parse(record["text"])
    assert sorted(said) == sorted(world.parse(truth["caption"]))


def test_verify_of_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["verify", str(miniatures.find("video").sample), "--max-new-tokens", "60"])
    assert not left.value.code
    shown = capsys.readouterr().out  # of whichever method is faster here
    assert re.search(r"(speculative|parallel) \(exact\): identical, 60 tokens", shown)
