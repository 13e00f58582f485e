"""The three distributions build, and their wheels work alone and together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from wheels.smoke import check

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.lab
def test_the_wheels_hold(tmp_path: Path) -> None:
    pytest.importorskip("build")
    for folder in (ROOT, ROOT / "miniatures", ROOT / "lab"):
        command = [sys.executable, "-m", "build", "--quiet", "--outdir", str(tmp_path / "dist")]
        subprocess.run([*command, str(folder)], check=True)
    check(tmp_path / "dist", tmp_path)
