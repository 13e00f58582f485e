"""A result's page says which revision it was measured at, and whether that is the whole truth."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sooner import provenance as origin
from sooner_lab.bench import pages


def result(dirty: bool, **more: Any) -> dict[str, Any]:
    told = {
        "argv": ["sooner", "bench", "x"], "date": "2026-11-22", "git": "abc123", "device": "cpu",
        "git_dirty": dirty, "threads": 1, "dtype": "float32",
        "versions": {"torch": "2", "transformers": "5"},
    }  # fmt: skip
    return {"provenance": told, **more}


def test_a_clean_page_names_its_revision() -> None:
    text = "\n".join(pages.head(result(False), "x.json", "X"))
    assert "revision `abc123` ·" in text
    assert "dirty" not in text


def test_a_dirty_page_says_so_where_nobody_overlooks_it() -> None:
    lines = pages.head(result(True), "x.json", "X")
    assert any("revision `abc123` **+ uncommitted changes**" in line for line in lines)
    assert any(line.startswith("> **Measured on a dirty tree**") for line in lines)


def test_parts_of_an_earlier_dirty_run_say_so() -> None:
    kept = [{"parts": ["loops"], **result(True)}]
    text = "\n".join(pages.head(result(False, kept=kept), "x.json", "X"))
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


def told(**options: Any) -> dict[str, Any]:
    return origin.provenance("cpu", "float32", 0, **options)


def test_written_results_do_not_make_a_tree_dirty_and_sources_do(tree: Path) -> None:
    (tree / "docs/results/x.json").write_text("2")
    (tree / "untracked.py").write_text("2")
    assert told()["git_dirty"] is False
    origin.revision.cache_clear()
    (tree / "src/code.py").write_text("2")
    assert told()["git_dirty"] is True


def test_the_tree_is_looked_at_once_when_a_run_begins(tree: Path) -> None:
    commit = origin.revision().commit
    (tree / "src/code.py").write_text("changed while it was measured")
    assert (told()["git"], told()["git_dirty"]) == (commit, False)
