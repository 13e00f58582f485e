"""Smoke test of the wheels: the library alone, with the miniatures, then with the lab as well.

    python tests/wheels/smoke.py dist

They are installed into an empty environment. What they depend on is linked from the environment
that runs this; nothing is downloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

LARGEST = 2_000_000
"""Bytes of the library's wheel: it holds no weights."""
OURS = ("sooner", "__editable__")
"""What entries of `site-packages` begin with that the wheels are to bring themselves."""

TRAIN = ("train", "draft", "--out", "head", "--threads", "1")
"""A command on prompts of the lab's world."""


def check(dist: Path, scratch: Path) -> None:
    """Install the newest wheels of a folder one after the other, and run the command after each.

    Args:
        dist: where they are.
        scratch: an empty folder for the environment.

    Raises:
        AssertionError: a command failed, or said something else; tells which.
    """
    library, bundled, lab = (
        _newest(dist, name) for name in ("sooner-", "sooner_miniatures-", "sooner_lab-")
    )
    size = library.stat().st_size
    assert size < LARGEST, f"{library.name} has {size:,} bytes"
    extras = ("sooner_lab", "sooner_miniatures")
    assert not [name for name in _files(library) if name.startswith(extras)]
    assert [entry for entry in _files(bundled) if entry.endswith(".py")] == [
        "sooner_miniatures/__init__.py"
    ]
    assert not [name for name in _files(lab) if name.endswith((".safetensors", ".mp4"))]
    home = _environment(scratch / "environment")
    _install(home, library)
    listed = _sooner(home, scratch, "--help")
    assert "caption" in listed, listed
    assert "bench" not in listed, listed
    answer = _sooner(home, scratch, "doctor")
    assert "missing: pip install sooner-miniatures" in answer, answer
    assert "missing: pip install sooner-lab" in answer, answer
    for words in ("caption clip.mp4", "caption --sample", "parse --sample -o out", "imagine words"):
        answer = _sooner(home, scratch, *words.split(), code=2)
        (line,) = [entry for entry in answer.splitlines() if entry.startswith("sooner: ")]
        assert "`pip install sooner-miniatures`" in line, answer
    _install(home, bundled)
    _check_miniatures(home, scratch)
    _install(home, lab)
    listed = _sooner(home, scratch, "--help")
    assert all(f" {name} " in listed for name in ("bench", "eval", "predict")), listed


def _check_miniatures(home: Path, scratch: Path) -> None:
    """Run every command that takes a miniature, where the lab is not installed."""
    answer = _sooner(home, scratch, "doctor")
    assert "installed  document, image, motion, needle, robot, video" in answer, answer
    answer = _sooner(home, scratch, "caption", "--sample", "--compare", "--threads", "1")
    assert "scene" in answer or "tokens" in answer, answer
    _sooner(home, scratch, "parse", "--sample", "-o", "out", "--threads", "1")
    assert list((scratch / "out").rglob("*.md"))
    words = ("imagine", "a red circle left of a blue square on green", "-o", "picture.png")
    _sooner(home, scratch, *words, "--threads", "1")
    assert (scratch / "picture.png").is_file()
    _sooner(home, scratch, "act", "once", "picture.png", "reach the red ball", "--threads", "1")
    _sooner(home, scratch, "demo", "--export", "race.html", "--threads", "1")
    assert (scratch / "race.html").is_file()
    _check_server(home, scratch)
    answer = _sooner(home, scratch, *TRAIN, code=2)
    assert "`pip install sooner-lab`" in answer, answer


def _check_server(home: Path, folder: Path) -> None:
    """Start `sooner serve miniature`, and end it once it answers."""
    command = [str(home / "bin" / "sooner"), "serve", "miniature", "--port", "0"]
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=_without_python(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with server:
        assert server.stdout is not None
        lines = []
        for line in server.stdout:
            lines.append(line)
            if "answers at http" in line:
                break
        server.kill()
    assert "answers at http" in lines[-1], "".join(lines)


def _without_python() -> dict[str, str]:
    """The environment without what tells Python where to look, on one thread."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    return {**environment, "OMP_NUM_THREADS": "1"}


def _files(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


def _newest(dist: Path, name: str) -> Path:
    wheels = sorted(dist.glob(f"{name}*.whl"), key=lambda path: path.stat().st_mtime)
    assert wheels, f"no {name}*.whl in '{dist}'"
    return wheels[-1]


def _environment(home: Path) -> Path:
    """An environment with everything that this one has but our own distributions."""
    venv.create(home, with_pip=False)
    names = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=names))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS):
            (packages / entry.name).symlink_to(entry)
    return home


def _install(home: Path, wheel: Path) -> None:
    python = str(home / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    # A tree on PYTHONPATH that was built has metadata, by which pip takes it for installed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([*command, "--no-index", str(wheel)], check=True, env=environment)


def _sooner(home: Path, folder: Path, *words: str, code: int = 0) -> str:
    """What the command says, as a user would type it."""
    done = subprocess.run(
        [str(home / "bin" / "sooner"), *words],
        cwd=folder,
        env=_without_python(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, f"sooner {' '.join(words)}: {done.returncode}\n{done.stdout}"
    return done.stdout


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        check(Path(sys.argv[1]).resolve(), Path(made))
    print("the three wheels hold")
