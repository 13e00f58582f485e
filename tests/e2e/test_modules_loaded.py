"""How many of the library's modules one explicit command runs code of."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

MAX_MODULES = 120
TRACED = """
import json, sys, threading
from pathlib import Path

import torch, transformers  # whose imports take three times as long under a profile

ran = set()

def seen(frame, event, argument):
    if event == "call":
        ran.add(frame.f_globals.get("__name__"))

sys.setprofile(seen)
threading.setprofile(seen)
from sooner.cli.main import main
try:
    main(sys.argv[2:])
except SystemExit as left:
    code = left.code
sys.setprofile(None)
ours = [name for name in sys.modules if name.split(".")[0] == "sooner" and name in ran]
Path(sys.argv[1]).write_text(json.dumps(sorted(ours)))
sys.exit(code)
"""


@pytest.mark.parametrize("method", ["speculative", "parallel"])
def test_an_explicit_caption_loads_what_it_runs(
    method: str, clip: Path, target_folder: Path, draft_folder: Path, tmp_path: Path
) -> None:
    report = tmp_path / "modules.json"
    done = subprocess.run(
        [
            sys.executable, "-c", TRACED, str(report), "caption", str(clip),
            "--model", str(target_folder), "--draft", str(draft_folder),
            "--method", method, "--frames", "4", "--max-new-tokens", "12", "--threads", "1",
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    loaded = json.loads(report.read_text())
    assert {"sooner.cli.caption", "sooner.engine.loop", f"sooner.methods.{method}"} <= {*loaded}
    assert len(loaded) <= MAX_MODULES, "\n".join(loaded)
