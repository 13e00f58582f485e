"""Folders of local clusters, which a driver that is killed leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sooner.ray import cluster
from sooner.storage.attempts import this_process

TELL = """
import json
from sooner.storage.attempts import this_process
print(json.dumps(this_process().told()))
"""


def left_behind(home: Path, name: str, told: str, hours: float) -> Path:
    """The folder of a driver that started so long ago, with a log of Ray in it."""
    folder = home / name
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "raylet.out").write_text("log")
    began = time.time() - 3600 * hours
    (folder / cluster.DRIVER).write_text(told)
    os.utime(folder / cluster.DRIVER, (began, began))
    return folder


def test_folders_of_killed_drivers_go_after_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_short_folder", lambda: tmp_path)
    ended = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    alive = json.dumps(this_process().told())
    elsewhere = json.dumps({**json.loads(ended.stdout), "place": "another machine"})
    killed = left_behind(tmp_path, "sooner-killed", ended.stdout, 2)
    kept = [
        left_behind(tmp_path, "sooner-just-killed", ended.stdout, 0.5),
        left_behind(tmp_path, "sooner-alive", alive, 2),
        left_behind(tmp_path, "sooner-elsewhere", elsewhere, 2),
        left_behind(tmp_path, "sooner-cut", alive[:9], 2),
        left_behind(tmp_path, "sooner-list", "[]", 2),
        left_behind(tmp_path, "somebody", ended.stdout, 2),
    ]
    own = Path(cluster.own_folder())
    assert not killed.exists()
    assert all((folder / "logs" / "raylet.out").exists() for folder in kept)
    assert own.parent == tmp_path
    assert json.loads((own / cluster.DRIVER).read_text()) == this_process().told()
