"""`sooner parse` through its entry point: what is printed, what is on disk, the exit code."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from commands import Run, records
from sooner.cli.parse import ParseOptions
from sooner.errors import SoonerError
from sooner.tasks.parse import ParseSettings
from tasks.drafting import pdf, picture


@pytest.fixture
def how(target_folder: Path) -> list[object]:
    return ["--model", target_folder, "--drafter", "text-layer", "--max-new-tokens", 8,
            "--dpi", 72]  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    (root / "sub").mkdir(parents=True)
    pdf(root / "sub" / "paper.pdf", 3)
    picture(root / "scan.png")
    return root


def test_a_tree_is_parsed(run: Run, tree: Path, tmp_path: Path, how: list[object]) -> None:
    out = tmp_path / "out"
    done = run("parse", tree, "-o", out, *how, "--format", "md,json,html")
    assert done.code == 0
    assert done.errors == []
    assert "loading models" in done.err
    assert "[4/4] sub/paper.pdf page 3: " in done.err
    assert "mode: exact" in done.err
    assert "about " in done.err  # an estimate, but for the last page
    assert "4 of 4 pages parsed" in done.err
    assert "pages/s" in done.err.splitlines()[-1]
    rows = records(out)
    assert [(row["document"], row["page"]) for row in rows] == [
        ("scan.png", 1), ("sub/paper.pdf", 1), ("sub/paper.pdf", 2), ("sub/paper.pdf", 3),
    ]  # fmt: skip
    for record in rows:
        for name in record["files"]:
            assert (out / name).stat().st_size > 0
    assert len(rows[0]["files"]) == 2
    page = json.loads((out / "sub/paper.pdf/page-0002.json").read_text())
    assert page["size"] == [60, 40]
    assert not {"seconds", "stages"} & set(page)  # the same from run to run
    assert rows[2]["tokens"] == 8
    # Random text never ends, and says nothing about speed.
    assert {row["truncated"] for row in rows} == {"length"}
    assert {row["tokens_per_second"] for row in rows} == {None}


def test_the_same_command_goes_on(
    run: Run, tree: Path, tmp_path: Path, how: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = run("parse", tree / "sub", "-o", out, *how, "--pages", "1,3")
    assert (first.code, len(records(out))) == (0, 2)
    rest = run("parse", tree / "sub", "-o", out, *how)
    assert "1 of 1 pages parsed, 1 of them in part, 2 done before" in rest.err
    with monkeypatch.context() as patch:  # nothing left to do: no model is even loaded
        patch.setattr("sooner.tasks.parse.parser.load_parser", None)
        again = run("parse", tree / "sub", "-o", out, *how)
    assert again.code == 0
    assert "0 of 0 pages parsed, 3 done before" in again.err
    fresh = run("parse", tree / "sub", "-o", out, *how, "--fresh")
    assert "3 of 3 pages parsed" in fresh.err
    other = run("parse", tree / "sub", "-o", out, *how, "--prompt", "what ?")
    assert "3 of 3 pages parsed" in other.err
    assert len(records(out)) == 3


def test_failures_are_reported_and_counted(
    run: Run, tree: Path, tmp_path: Path, how: list[object]
) -> None:
    (tree / "cut.pdf").write_bytes((tree / "sub" / "paper.pdf").read_bytes()[:300])
    picture(tree / "dot.png", 1, 1)
    out = tmp_path / "out"
    done = run("parse", tree, "-o", out, *how, "--quiet")
    assert done.code == 2
    assert done.err.splitlines() == done.errors
    # The total is of the documents opened so far, which is a matter of moments.
    assert [re.sub(r"/\d+\+\]", "/N+]", line) for line in done.errors] == [
        "sooner: [1/N+] cut.pdf: FAILED, is truncated",
        "sooner: [2/N+] dot.png page 1: FAILED, is 1 x 1 px, too small to hold text (at least 8 "
        "px a side)",
    ]
    assert [row["status"] for row in records(out)].count("FAILED") == 2
    stopped = run("parse", tree, "-o", tmp_path / "other", *how, "--on-error", "stop")
    assert stopped.code == 2
    assert "is truncated" in stopped.errors[-1]
    assert not any("dot.png" in line for line in stopped.errors)


def test_ctrl_c_prints_how_to_go_on(
    run: Run, tree: Path, tmp_path: Path, how: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sooner.tasks.parse import PageParser

    out, real = tmp_path / "out", PageParser.__call__

    def interrupted(self: Any, page: Any, draft: Any = None) -> Any:
        if page.number == 2:
            raise KeyboardInterrupt
        return real(self, page, draft)

    with monkeypatch.context() as patch:
        patch.setattr(PageParser, "__call__", interrupted)
        done = run("parse", tree / "sub", "-o", out, *how)
    assert done.code == 130
    (line,) = done.errors
    assert line.startswith("sooner: interrupted: 1 of 3 pages parsed")
    assert line.endswith("; the same command goes on there")
    assert "2 of 2 pages parsed" in run("parse", tree / "sub", "-o", out, *how).err


def test_a_shard_is_a_part(run: Run, tree: Path, tmp_path: Path, how: list[object]) -> None:
    out = tmp_path / "out"
    for number in (1, 2):
        assert run("parse", tree, "-o", out, *how, "--shard", f"{number}/2").code == 0
    again = run("parse", tree, "-o", out, *how)
    assert "0 of 0 pages parsed, 4 done before" in again.err


def test_a_terminal_shows_a_bar(
    run: Run, tree: Path, tmp_path: Path, how: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    done = run("parse", tree / "sub", "-o", tmp_path / "out", *how)
    assert done.code == 0
    assert "parsing pages" in done.err
    assert "3/3" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drafter", "ocrr"], "did you mean 'ocr'"),
        (["--stages", "pages"], "did you mean 'page'"),
        (["--format", "md,jsn"], "did you mean 'json'"),
        (["--pages", "0"], "the first page is 1"),
        (["--acceptance-threshold", "2"], "acceptance_threshold is 2"),
        (["--on-error", "stpo"], "did you mean 'stop'"),
        (["--timeout", "0"], "timeout is 0"),
        (["--dpi", "-5"], "dpi is -5"),
        (["--longest", "0"], "longest is 0"),
        (["--threads", "0"], "threads is 0"),
        (["--shard", "3/2"], "shard is '3/2'; write it as 1/8 to 8/8"),
        (["--model", "./nowhere"], "does not exist"),
    ],
)
def test_bad_options_are_a_single_line(
    run: Run, tree: Path, tmp_path: Path, how: list[object], options: list[str], message: str
) -> None:
    done = run("parse", tree, "-o", tmp_path / "out", *how, *options)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert message in line


def test_a_model_s_folder_sets_the_prompt_and_the_page_size(
    run: Run, tree: Path, tmp_path: Path, target_folder: Path
) -> None:
    """Without options; those that are given have the say."""
    model = tmp_path / "model"
    shutil.copytree(target_folder, model)
    config = {"prompt": "w8 w9", "form": "doctags", "size": [90, 120]}
    (model / "sooner.json").write_text(json.dumps({"parse": config}))
    how = ["--model", model, "--drafter", "none", "--max-new-tokens", 4, "--workers", 0]
    out = tmp_path / "out"
    assert run("parse", tree / "sub", "-o", out, *how).code == 0
    page = json.loads((out / "paper.pdf/page-0001.json").read_text())
    assert page["size"] == [90, 60]
    again = run("parse", tree / "sub", "-o", out, *how, "--dpi", 72)
    assert "3 of 3 pages parsed" in again.err
    (model / "sooner.json").write_text('{"parse": {"size": "large"}}')
    broken = run("parse", tree / "sub", "-o", out, *how)
    assert broken.code == 2
    assert "sooner.json' can't be used" in broken.errors[0]


def test_trees_and_length_are_set_on_the_command_line(
    run: Run, how: list[object], tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[ParseSettings] = []

    def stop(self: ParseOptions, on_page: Any) -> Any:
        settings.append(self.settings)
        raise SoonerError("enough")

    monkeypatch.setattr(ParseOptions, "job", stop)
    options = ["--nodes", 6, "--max-nodes", 7, "--depth", 3]
    run("parse", tree, "-o", tmp_path / "out", *options)
    run("parse", tree, "-o", tmp_path / "out", "--acceptance-threshold", 0.75)
    assert (settings[0].nodes, settings[0].max_nodes, settings[0].depth) == (6, 7, 3)
    assert settings[0].max_new_tokens == 8192
    assert settings[1].nodes == 16
    refused = run("parse", tree, "-o", tmp_path / "out", "--nodes", "many")
    assert "nodes is 'many'; it must be 'auto' or a whole number" in refused.err


def test_sigterm_is_as_ctrl_c(
    run: Run, tree: Path, tmp_path: Path, how: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in hand is given back, and no page is blamed for it."""
    from sooner.tasks.parse import PageParser

    def ended(self: Any, page: Any, draft: Any = None) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("goes on")

    out, before = tmp_path / "out", signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(PageParser, "__call__", ended)
        done = run("parse", tree / "sub", "-o", out, *how)
    assert done.code == 130
    assert signal.getsignal(signal.SIGTERM) == before
    assert [path for path in (out / ".sooner").rglob("*") if path.is_file()] == []
