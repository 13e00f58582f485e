"""`sooner search` through the entry point: files, lines, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Run
from sooner.sparse.search import run as searching
from sooner.sparse.table import PatternTable

pytestmark = pytest.mark.slow


@pytest.fixture
def search_args(target_folder: Path, clip: Path, tmp_path: Path) -> list[object]:
    """A short search that is written to `patterns.json`."""
    return [
        "search", "patterns", clip, "--model", target_folder, "--frames", 12,
        "--queries", 16, "--no-break-even", "--threads", 1, "-o", tmp_path / "patterns.json",
    ]  # fmt: skip


def test_a_search_writes_a_table_that_can_be_loaded(
    run: Run, search_args: list[object], tmp_path: Path
) -> None:
    done = run(*search_args)
    assert done.code == 0, done.err
    assert "saved" in done.err
    assert "approximate" in done.err
    path = tmp_path / "patterns.json"
    table = PatternTable.load(path)
    assert len(table.samples[0]) == 64
    assert table.frame_tokens == 16
    assert not list(tmp_path.glob(".*"))  # what an interrupted search needs is gone


def test_ctrl_c_leaves_a_line_and_the_same_command_goes_on(
    run: Run, search_args: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = searching.survey, []

    def broken(*arguments: object) -> object:
        seen.append(1)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(searching, "survey", broken)
    left = run(*search_args)
    assert left.code == 130
    assert "interrupted at 1 of 2 layers" in left.errors[0]
    assert not (tmp_path / "patterns.json").exists()
    calls: list[int] = []
    monkeypatch.setattr(searching, "survey", lambda *a: (calls.append(1), real(*a))[1])
    assert run(*search_args).code == 0
    assert len(calls) == 1  # the other layer was on record


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.mp4"], "'nowhere.mp4' does not exist"),
        (["--budget", "2"], "budget is 2; it must be above 0"),
        (["--model", "x/y"], "no video given"),
        (["--cost", "flop"], "did you mean 'flops'"),
        (["clip.mp4", "-o", "/dev/null/p.json"], "can't write '/dev/null/p.json'"),
    ],
)
def test_wrong_input_is_a_single_line(
    run: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    out = [] if "-o" in arguments else ["-o", tmp_path / "p.json"]
    done = run("search", "patterns", *arguments, *out)
    assert done.code == 2
    assert len(done.errors) == 1
    assert message in done.errors[0]
