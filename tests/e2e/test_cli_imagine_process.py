"""`sooner imagine` in a process of its own: a real signal, and what help imports."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import av
import numpy as np
import pytest

from commands import start, wait_for
from sooner.tasks.imagine.progress import GREY
from tasks import videos
from tasks.painters import camera

pytestmark = pytest.mark.slow


def test_ctrl_c_in_the_middle(tmp_path: Path) -> None:
    """A real signal: one line, the exit code, and the unfinished clip with grey for the rest."""
    model = camera(tmp_path / "cosmos", side=24)
    clip = videos.write(tmp_path / "clip.mkv", "mpeg4", 10, (96, 96))
    steps, out = tmp_path / "steps", tmp_path / "out"
    out.mkdir()
    options = ["--method", "plain", "--threads", 1, "--preview-dir", steps, "--preview-every", 8]
    call = ("imagine", "--continue", clip, "--model", model, *options, "--keep-partial")
    process = start(*call, "-o", out / "a.mp4")
    wait_for(process, lambda: steps.is_dir() and len(list(steps.glob("step-*.png"))) > 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted: 0 of 1 clips finished" in err
    assert [file.name for file in out.iterdir()] == ["a.mp4"]
    with av.open(str(out / "a.mp4")) as container:
        assert json.loads(container.metadata["comment"])["finish"] == "interrupted"
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert 9 < len(frames) < 17
    assert np.abs(frames[-1][-10:].astype(int) - GREY).max() < 12
