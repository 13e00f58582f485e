"""The command and the stages on a real Ray: what its page says, and what is refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ray_nodes import RayNodes

pytest.importorskip("ray.data")
pytest.importorskip("pypdfium2")
canvas = pytest.importorskip("reportlab.pdfgen.canvas")

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"

SMALL = [
    "unshare",
    "-Urm",
    "sh",
    "-c",
    'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"',
    "sh",
]
"""A command whose /dev/shm has 64 MB."""


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    pdf = canvas.Canvas(str(tmp_path / "paper.pdf"))
    for number in (1, 2):
        for line in range(20):
            pdf.drawString(
                72, 720 - 20 * line, f"Page {number}, line {line}: so it goes on and on."
            )
        pdf.showPage()
    pdf.save()
    return tmp_path / "paper.pdf"


def files(out: Path) -> dict[str, bytes]:
    paths = [path for path in out.rglob("*") if path.suffix in (".md", ".json", ".png")]
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in paths
        if ".sooner" not in path.parts
    }


def sooner(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sooner.cli", *arguments],
        capture_output=True, text=True, timeout=240, env={**os.environ, **environment},
    )  # fmt: skip


def in_small_memory() -> list[str]:
    """The beginning of a command with little shared memory, where that may be had."""
    if shutil.which("unshare") is None:
        return []
    works = subprocess.run([*SMALL, "true"], capture_output=True, check=False).returncode == 0
    return SMALL if works else []


@pytest.mark.slow
def test_the_command_runs_with_64_mb_of_shared_memory(paper: Path, tmp_path: Path) -> None:
    out = tmp_path / "plain"
    arguments = ["parse", "paper.pdf", "--drafter", "text-layer", "-o"]
    plain = subprocess.run(
        [sys.executable, "-m", "sooner.cli", *arguments, str(out)],
        cwd=tmp_path,
        capture_output=True,
    )
    assert plain.returncode == 0
    done = subprocess.run(
        [*in_small_memory(), sys.executable, "-m", "sooner.cli", *arguments, "by-ray", "--ray"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert files(tmp_path / "by-ray") == files(out)
    assert "2 of 2 pages parsed" in done.stderr
    assert "ray" not in re.sub("by-ray", "", done.stderr.lower()), done.stderr


@pytest.mark.slow
def test_the_stage_alone(paper: Path, tmp_path: Path) -> None:
    example = next(block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
                   if "sooner.ray" in block)  # fmt: skip
    start = "from sooner.ray.cluster import connected\nwith connected():\n"
    example = "\n".join(f"    {line}" for line in example.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", start + example], cwd=tmp_path, capture_output=True, text=True,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for number, line in zip((1, 2), sorted(done.stdout.splitlines()[-2:]), strict=True):
        assert line.startswith(f"paper.pdf {number} DRAFT Page {number}, line 0")


@pytest.mark.slow
def test_a_node_that_differs_is_named_before_anything_is_done(paper: Path, tmp_path: Path) -> None:
    """The second node has another `transformers`; it is the first that a search finds."""
    other = tmp_path / "other" / "transformers-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 0.0.1\n")
    path = os.pathsep.join([str(other.parent), os.environ.get("PYTHONPATH", "")])
    nodes = RayNodes()
    try:
        nodes.add(PYTHONPATH=path)
        nodes.wait(2)
        arguments = ["parse", str(paper), "-o", str(tmp_path / "out"), "--drafter", "text-layer"]
        done = sooner(*arguments, "--ray", "--ray-address", nodes.address, **nodes.environment)
    finally:
        nodes.close()
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert re.search(r"node '\S+:\d+' has transformers 0\.0\.1, and this one has [\d.]+;", line)
    assert not list((tmp_path / "out").rglob("*.md"))
