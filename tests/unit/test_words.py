"""The checker of names and the codemod that renames by tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
SOURCE = '''
class Draft:
    told: int = 0

    def rows(self, found: list[int]) -> list[int]:
        """Returns `found`."""
        return [one + self.told for one in found]


def call(draft: Draft, one: int) -> list[int]:
    return draft.rows(found=[one])
'''
RENAMED = (
    SOURCE.replace("found", "items").replace("told", "offset").replace("one + ", "item + ")
    .replace("for one in", "for item in").replace("one: int", "number: int")
    .replace("[one]", "[number]")
)  # fmt: skip
TABLE = """
src/a.py\tDraft.rows\tfound\titems
src/a.py\tDraft.rows\tone\titem
src/a.py\tcall\tone\tnumber
*\ttold\toffset
"""


def run(tool: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOLS / tool), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(SOURCE)
    return tmp_path


def test_riddles_are_counted_and_refused(tree: Path) -> None:
    done = run("words.py", "src", cwd=tree)
    assert done.returncode == 1
    assert "one 4" in done.stdout
    (tree / "src" / "a.py").write_text(RENAMED)
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
    (tree / "src" / "a.py").write_text(RENAMED)
    (folder / "b.py").write_text(
        f'class Public:\n    """{sentence}"""\n\n\nclass _Private:\n    """Number of rows."""\n'
    )
    done = run("words.py", "src", cwd=tree)
    assert done.returncode == int(not is_fine), done.stdout
    assert ("src/sooner/engine/b.py:1: Public: no verb in" in done.stdout) is not is_fine


def test_a_table_renames_locals_parameters_keywords_and_fields(tree: Path) -> None:
    pytest.importorskip("libcst")
    (tree / "table.tsv").write_text(TABLE)
    assert run("rename.py", "apply", "table.tsv", "--write", cwd=tree).returncode == 0
    assert (tree / "src" / "a.py").read_text() == RENAMED


def test_a_name_that_is_taken_is_refused_and_nothing_is_written(tree: Path) -> None:
    pytest.importorskip("libcst")
    (tree / "table.tsv").write_text("src/a.py\tcall\tone\tdraft\n")
    done = run("rename.py", "apply", "table.tsv", "--write", cwd=tree)
    assert done.returncode == 1
    assert "one -> draft, which is a variable there already" in done.stdout
    assert (tree / "src" / "a.py").read_text() == SOURCE
