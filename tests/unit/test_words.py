"""The checker of names and docstrings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
RIDDLES = "def rows(found: list[int]) -> list[int]:\n    return [one + 1 for one in found]\n"
PLAIN = RIDDLES.replace("found", "items").replace("one", "item")


def run(tool: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOLS / tool), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(RIDDLES)
    return tmp_path


def test_riddles_are_counted_and_refused(tree: Path) -> None:
    done = run("words.py", "src", cwd=tree)
    assert done.returncode == 1
    assert "one 2" in done.stdout
    (tree / "src" / "a.py").write_text(PLAIN)
    assert run("words.py", "src", cwd=tree).returncode == 0


def test_docstrings_begin_with_a_subject_or_a_verb(tree: Path) -> None:
    (tree / "src" / "a.py").write_text('"""Of one tree."""\n')
    done = run("words.py", "src", cwd=tree)
    assert done.returncode == 1
    assert "src/a.py:1: the docstring begins with 'Of one tree.'" in done.stdout


@pytest.mark.parametrize(
    ("sentence", "is_fine"),
    [
        ("Returns the rows.", True),
        ("Draft tokens for each row.", True),
        ("A page that a rule can evict.", True),
        ("Rows that share graphs.", True),
        ("The task that the page shows (Li et al. 2025) beside others.", True),
        ("Number of rows.", False),
        ("The rows of `one.that(is)` long.", False),
        ("Rows, by page. They are sorted.", False),
    ],
)
def test_a_public_docstring_of_the_library_has_a_verb(
    tree: Path, sentence: str, is_fine: bool
) -> None:
    folder = tree / "src" / "sooner" / "engine"
    folder.mkdir(parents=True)
    (tree / "src" / "a.py").write_text(PLAIN)
    (folder / "b.py").write_text(
        f'class Public:\n    """{sentence}"""\n\n\nclass _Private:\n    """Number of rows."""\n'
    )
    done = run("words.py", "src", cwd=tree)
    assert done.returncode == int(not is_fine), done.stdout
    assert ("src/sooner/engine/b.py:1: Public: no verb in" in done.stdout) is not is_fine
