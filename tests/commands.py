"""Commands of `sooner` as a person runs them: their output, their exit code, what they leave."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sooner.cli.main import main

PATIENCE = 120
"""Seconds in which a process must show that it has begun."""


class Outcome(NamedTuple):
    """How a command ended.

    Attributes:
        code: of the exit.
        out, err: what it printed to standard output and standard error.
    """

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Error lines: one for each thing that went wrong."""
        return [line for line in self.err.splitlines() if line.startswith("sooner: ")]


def exit_code(*arguments: str) -> int:
    """Runs the command line in this process."""
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    return int(end.value.code or 0)


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process, through the function that the script calls."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(argument) for argument in arguments])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return Outcome(int(left.value.code or 0), output.out, output.err)

    return call


def records(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file, or of the manifest in a folder of results."""
    path = path / "manifest.jsonl" if path.is_dir() else path
    return [json.loads(line) for line in path.read_text().splitlines()]


class Terminal(io.StringIO):
    """Both streams of a terminal, as they mix on the screen."""

    def isatty(self) -> bool:
        return True


def start(*arguments: object) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "sooner.cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def wait_for(process: subprocess.Popen[str], has_begun: Callable[[], bool]) -> None:
    """Returns once a running process has done what is asked for."""
    deadline = time.monotonic() + PATIENCE
    while not has_begun():
        assert time.monotonic() < deadline, "nothing was done"
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
