"""A result's page says which revision it was measured at, and whether that is the whole truth."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sooner import provenance as origin
from sooner_lab.bench import render, report
from sooner_lab.bench.declared import times
from sooner_lab.bench.plots import Figure, Panel
from sooner_lab.bench.render import Page, Table, goal_table, pivot
from sooner_lab.cli.bench_parts import show_tables
from sooner_lab.provenance import provenance


def result(dirty: bool, **more: Any) -> dict[str, Any]:
    data = {
        "argv": ["sooner", "bench", "x"], "date": "2026-11-22", "git": "abc123", "device": "cpu",
        "git_dirty": dirty, "threads": 1, "dtype": "float32",
        "versions": {"torch": "2", "transformers": "5"},
    }  # fmt: skip
    return {"provenance": data, **more}


def test_a_clean_page_names_its_revision() -> None:
    text = "\n".join(render.head(result(False), "x.json", "X"))
    assert "revision `abc123` ·" in text
    assert "dirty" not in text


def test_a_dirty_page_warns_at_the_top() -> None:
    lines = render.head(result(True), "x.json", "X")
    assert any("revision `abc123` **+ uncommitted changes**" in line for line in lines)
    assert any(line.startswith("> **Measured on a dirty tree**") for line in lines)


def test_parts_of_an_earlier_dirty_run_are_marked() -> None:
    earlier = [{"parts": ["loops"], **result(True)}]
    text = "\n".join(render.head(result(False, kept=earlier), "x.json", "X"))
    assert text.count("**+ uncommitted changes**") == 1
    assert "Measured on a dirty tree" not in text


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with a source and a result, which `provenance` looks at."""
    for name in ("src/code.py", "docs/results/x.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *command], check=True)
    monkeypatch.setattr(origin, "__file__", str(tmp_path / "src" / "code.py"))
    origin.revision.cache_clear()
    yield tmp_path
    origin.revision.cache_clear()


def fresh_record(**options: Any) -> dict[str, Any]:
    return provenance("cpu", "float32", 0, **options)


def test_written_results_do_not_make_a_tree_dirty_and_sources_do(tree: Path) -> None:
    (tree / "docs/results/x.json").write_text("2")
    (tree / "untracked.py").write_text("2")
    assert fresh_record()["git_dirty"] is False
    origin.revision.cache_clear()
    (tree / "src/code.py").write_text("2")
    assert fresh_record()["git_dirty"] is True


def test_the_tree_is_looked_at_once_when_a_run_begins(tree: Path) -> None:
    commit = origin.revision().commit
    (tree / "src/code.py").write_text("changed while it was measured")
    assert (fresh_record()["git"], fresh_record()["git_dirty"]) == (commit, False)


ROWS = [
    {"arm": "a", "size": 1, "speed": 0.5, "deep": {"x": 1}},
    {"arm": "b", "size": 1, "speed": None},
]
PAGE = Page(
    lambda result: f"Of {result['name']}",
    (
        Table("Arms", "rows", (
            ("arm", "arm", "{}"), (times("speed", 100), "speed, %", "{:.0f}"),
            ("deep.x", "deep", "{}"),
        ), "*Below*."),
        Table("Empty", "nothing", ()),
    ),
    (
        Figure("speed", "Speed", (Panel("rows", "size", "speed", "size", "speed", by="arm"),)),
        Figure("old", "An old picture", needs="gone"),
    ),
    retired={"abc": ("gone", "never")},
    goals="Fixed.",
)  # fmt: skip


def page_result(**more: Any) -> dict[str, Any]:
    return {"name": "it", "rows": ROWS, "provenance": fresh_record() | {"git": "abc"}, **more}


def test_a_page_is_made_of_what_is_declared(tmp_path: Path) -> None:
    goals = [{"goal": "g", "wanted": 1, "at_most": True, "reached": 2.0, "met": False}]
    page = PAGE.markdown(page_result(goals=goals, gone=[1]), "x.json")
    assert page.startswith("# Of it\n\nMade from [`x.json`](x.json)")
    assert "No longer measured: `gone`." in page
    assert "revision `abc` has the code" in page
    assert "`never`" not in page
    assert "| g | at most 1 | 2 | **missed** |\n\nFixed." in page
    table = "| arm | speed, % | deep |\n| --- | --- | --- |\n| a | 50 | 1 |\n| b | – | – |"
    assert f"## Arms\n\n{table}\n\n*Below*." in page
    assert "Empty" not in page
    assert "![Speed](figures/x-speed.png)\n\n*Speed*" in page
    assert "![An old picture](figures/x-old.png)" in page
    assert PAGE.write_figures(page_result(), tmp_path, "x") == ["x-speed.png"]
    assert (tmp_path / "x-speed.png").stat().st_size > 2000


def test_goals_of_every_form_share_a_table() -> None:
    (table,) = goal_table([
        {"goal": "words", "wanted": "below 5", "reached": 4.0, "met": True},
        {"goal": "points", "wanted": 1.0, "reached": 0.5, "met": False, "where": "q", "points": 3,
         "missed": [["q", 0.5]], "at_most": False, "interval": [0.1, 0.9]},
        {"goal": "later", "wanted": 1.0, "reached": None, "met": None, "reason": "no GPU"},
    ])  # fmt: skip
    assert table.heads == ["goal", "wanted", "reached", "95 % interval", "at", "met at", ""]
    assert table.rows[1] == [
        "points", "at least 1", "0.5", "0.1 to 0.9", "q", "2 of 3", "**missed**"
    ]  # fmt: skip
    assert table.rows[2][-1] == "unmeasured: no GPU"
    assert table.remark == "The worst point counts. Missed: points: q: 0.500."


def test_a_pivot_lays_rows_out_by_two_keys() -> None:
    heads, lines = pivot(ROWS, "arm", "size", lambda row: str(row["speed"]))
    assert (heads, lines) == (["arm", "1"], [["a", "0.5"], ["b", "None"]])


def test_names_are_whole_in_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    table = render.ReportTable("t", ["an arm of a long name", "x"], [["a-name-that-is-long", "1"]])
    show_tables([table], 1)
    printed = "".join(
        line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if "│" in line
    )
    assert "a-name-that-is-long" in printed


RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.mark.parametrize(
    "name",
    sorted(path.stem for path in RESULTS.glob("*.json") if path.with_suffix(".md").is_file()),
)
def test_every_committed_page_is_what_its_result_renders(name: str) -> None:
    result = json.loads((RESULTS / f"{name}.json").read_text())
    if result.get("bench") not in report.PAGES or not hasattr(
        report.page_of(result), "make_tables"
    ):
        pytest.skip("no bench of the tree made it")
    page = report.markdown(result, f"{name}.json")
    assert page == (RESULTS / f"{name}.md").read_text()
    for line in page.splitlines():
        if line.startswith("!["):
            assert (RESULTS / line.split("](")[1].rstrip(")")).is_file()


GOALS = {
    "act": "act.goals", "drafters": "drafters", "parallel": "parallel.run", "parse": "parse.goals",
    "prefill": "prefill.run", "serve": "serve.goals",
}  # fmt: skip
"""Modules with the goals of a bench."""


@pytest.mark.parametrize("name", GOALS)
def test_goals_judge_committed_results_as_they_were_judged(name: str) -> None:
    result = json.loads((RESULTS / f"{name}.json").read_text())
    module = import_module(f"sooner_lab.bench.{GOALS[name]}")
    judged = {row["goal"]: (row["reached"], row["met"]) for row in module.goals(result)}
    committed = {row["goal"]: (row["reached"], row["met"]) for row in result["goals"]}
    assert len(judged) >= 3
    assert judged.items() <= committed.items()  # some were of parts that are no longer measured
    empty = {"arms": [], "sweep": [], "settings": result.get("settings")}
    assert module.goals(empty) == []
