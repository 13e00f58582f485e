"""A long document takes no more memory than a short one, through the whole command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, sys

from sooner.cli.main import main
from sooner.cli.parse_options import Wanted
from tasks.drafting import EchoParser


class Weighed(EchoParser):
    def __call__(self, page, draft=None):
        if page.number in (20, 200):
            with open("/proc/self/statm") as file:
                print(int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE"), flush=True)
        return super().__call__(page, draft)


if __name__ == "__main__":
    Wanted.load = lambda self, display, beside=0: Weighed()
    main(["parse", *sys.argv[1:], "--drafter", "text-layer", "--quiet", "--dpi", "60"])
"""


def long_pdf(path: Path, pages: int) -> Path:
    from reportlab.pdfgen.canvas import Canvas

    canvas = Canvas(str(path), pagesize=(595, 842))
    for number in range(1, pages + 1):
        canvas.setFont("Helvetica", 11)
        for line in range(30):
            canvas.drawString(50, 780 - 24 * line, f"line {line} of page {number} says this much")
        canvas.showPage()
    canvas.save()
    return path


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_two_hundred_pages_take_the_memory_of_twenty(tmp_path: Path, target_folder: Path) -> None:
    """A page's picture has 1 MB here: were pages kept, 180 of them would show."""
    (tmp_path / "run.py").write_text(SCRIPT)
    source = long_pdf(tmp_path / "long.pdf", 200)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "run.py"), str(source), "-o", str(tmp_path / "out"),
         "--model", str(target_folder)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    early, late = (int(line) for line in done.stdout.split())
    assert late - early < 40e6
    assert len((tmp_path / "out" / "manifest.jsonl").read_text().splitlines()) == 200
    assert "page 200 says" in (tmp_path / "out" / "long.pdf.md").read_text()
