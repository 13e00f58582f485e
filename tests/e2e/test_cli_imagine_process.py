"""`sooner imagine` in a process of its own: a real signal."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from commands import start
from tasks import videos
from tasks.painters import camera

pytestmark = pytest.mark.slow


def test_ctrl_c_in_the_middle(tmp_path: Path) -> None:
    """One line, the exit code, and no clip that is not finished."""
    model = camera(tmp_path / "cosmos", side=24)
    clip = videos.write(tmp_path / "clip.mkv", "mpeg4", 10, (96, 96))
    out = tmp_path / "out"
    out.mkdir()
    options = ["--method", "plain", "--threads", 1, "-o", out / "a.mp4"]
    process = start("imagine", "--continue", clip, "--model", model, *options)
    assert process.stderr is not None
    assert any("drawing" in line for line in iter(process.stderr.readline, ""))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted: nothing is saved" in err
    assert list(out.iterdir()) == []
