"""The tutorials are run as a reader would: `console` lines and `python` blocks, in one folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def steps(page: Path) -> list[list[str]]:
    """Commands of a page in order: those behind `$`, and each Python block as one."""
    commands = []
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            commands.append([sys.executable, "-c", text])
            continue
        for line in text.splitlines():
            name, *arguments = shlex.split(line.removeprefix("$ "))
            assert name == "sooner", f"{page.name}: {line}"
            commands.append([sys.executable, "-m", "sooner.cli", *arguments])
    return commands


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, tmp_path: Path) -> None:
    outputs = []
    for command in steps(page):
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{command[2:]}: {done.stderr[-2000:]}"
        outputs.append(done.stdout + done.stderr)
    assert outputs
    if "`identical`" in page.read_text(encoding="utf-8"):
        assert "identical" in "".join(outputs)
