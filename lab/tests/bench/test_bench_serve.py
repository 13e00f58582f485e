"""`sooner bench serve` as a user starts it: real servers of the miniature, every part."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import exit_code as run


@pytest.mark.slow
def test_a_small_run_reports_every_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "serve.json"
    sizes = "--clips 1 --texts 1 --clients 1,2 --max-rows 2 --rounds 1"
    limits = "--clip-tokens 12 --text-tokens 12"
    arms = "--arms one-by-one,speculative,hf-static,hf-continuous"
    arguments = f"{sizes} {limits} {arms} --json {target}"
    assert run("bench", "serve", *arguments.split()) == 0
    result = json.loads(target.read_text())
    rows = {(row["arm"], row["clients"]): row for row in result["clients"]}
    assert set(rows) == {
        ("plain", 1), ("plain", 2), ("one-by-one", 2), ("speculative", 1), ("speculative", 2),
    }  # fmt: skip
    for row in rows.values():
        assert row["parity"] == "identical"
        assert row["lost"] == 0
        assert row["tokens_per_second"] > 0
    assert rows["plain", 2]["over_plain"]["value"] == 1
    assert "acceptance_rate" in rows["speculative", 1]  # None where no draft paid
    text = {row["arm"]: row for row in result["text"]}
    assert set(text) == {"plain", "speculative", "hf-static", "hf-continuous"}
    assert all("error" in row or row["tokens_per_second"] > 0 for row in text.values())
    assert {row["parity"] for row in result["parity"]} == {"identical"}
    assert len(result["goals"]) == 3
    assert "Closed loops" in capsys.readouterr().out
    assert run("bench", "report", str(target)) == 0
    assert "## Text alone" in target.with_suffix(".md").read_text()
