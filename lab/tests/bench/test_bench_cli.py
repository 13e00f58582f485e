"""`sooner bench caption` on the miniature: every kind of arm, as a user starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import exit_code as run
from sooner_lab.bench.report import STUDIES


def test_a_small_run_reports_every_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "result.json"
    sizes = ["--clips", "1", "--repeats", "1", "--max-new-tokens", "24"]
    arguments = [*sizes, "--threads", "1", "--json"]
    assert run("bench", "caption", *arguments, str(target)) == 0
    result = json.loads(target.read_text())
    arms = {arm["method"]: arm for arm in result["arms"]}
    assert {"plain", "hf", "hf-assisted", "hf-prompt-lookup", "speculative", "parallel"} <= set(
        arms
    )
    assert all(arm["parity"] in ("identical", "tie") for arm in arms.values())
    assert all(arm["tokens"] == 24 and arm["decode_seconds"] > 0 for arm in arms.values())
    assert arms["plain"]["decode_speedup"] == 1.0
    assert arms["speculative"]["mean_acceptance_length"] > 1
    assert arms["speculative"]["theory_speedup"] > 0
    assert {"git", "argv", "versions", "device", "dtype", "threads", "seed"} <= set(
        result["provenance"]
    )
    assert "speculative" in capsys.readouterr().out
    assert run("bench", "report", str(target)) == 0
    page = target.with_suffix(".md").read_text()
    assert "| speculative |" in page


def test_lossy_arms_run_at_the_same_retention(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    sizes = ["--clips", "1", "--repeats", "1", "--max-new-tokens", "12"]
    lossy = ("fastv", "sparse-vlm", "pyramid-drop")
    arguments = [*sizes, "--arms", ",".join(lossy), "--json", str(target)]
    assert run("bench", "caption", *arguments) == 0
    arms = {arm["method"]: arm for arm in json.loads(target.read_text())["arms"]}
    for name in lossy:
        assert arms[name]["retention"] == pytest.approx(0.1, abs=1e-6)
    assert "retention" not in arms["plain"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clips", "0"], "clips is 0"),
        (["missing.mp4"], "missing.mp4"),
    ],
)
def test_bad_requests_get_a_short_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("bench", "caption", *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_report_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert run("bench", "report", str(tmp_path / "x.json")) == 2
    assert "is no result of `sooner bench`" in capsys.readouterr().err


@pytest.mark.parametrize("bench", STUDIES)
def test_a_report_of_a_study_names_the_commit_that_can_write_it(
    bench: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = Path(__file__).parents[3] / "docs" / "results" / f"{bench}.json"
    (tmp_path / "x.json").write_text(committed.read_text())
    assert run("bench", "report", str(tmp_path / "x.json")) == 2
    assert f"write its page at commit {STUDIES[bench]}" in capsys.readouterr().err
    assert not (tmp_path / "x.md").exists()
