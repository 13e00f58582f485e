"""Memory: a long document takes no more than a short one, and a page that takes too much is read
with less."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sooner.documents import Page
from sooner.errors import MemoryRanOutError
from sooner.tasks.loading import ModelPair
from sooner.tasks.parse import PageParser, ParseSettings
from tasks.parsing import noise_page, qwen3_vl

pytestmark = pytest.mark.slow

FIXED = {"nodes": 12, "max_new_tokens": 24}

SCRIPT = """
import os, sys

from sooner.cli.main import main
from sooner.cli.parse_options import ParseOptions
from tasks.drafting import EchoParser


class Weighed(EchoParser):
    def __call__(self, page, draft=None):
        if page.number in (20, 200):
            with open("/proc/self/statm") as file:
                print(int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE"), flush=True)
        return super().__call__(page, draft)


if __name__ == "__main__":
    ParseOptions.load = lambda self, display, beside=0: Weighed()
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
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
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


@pytest.fixture
def qwen() -> ModelPair:
    return qwen3_vl()


Limit = Callable[[int], list[int]]


@pytest.fixture
def limited(qwen: ModelPair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Limit]:
    """Sets from how many patches on a picture is too much; patches of all that were tried."""

    def set_limit(maximum: int) -> list[int]:
        tried: list[int] = []
        visual = qwen.target.model.model.visual
        real = visual.forward

        def forward(pixels: torch.Tensor, *args: Any, **named: Any) -> Any:
            tried.append(len(pixels))
            if len(pixels) > maximum:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            return real(pixels, *args, **named)

        monkeypatch.setattr(visual, "forward", forward)
        return tried

    return set_limit


def scaled(page: Page, width: int, height: int) -> Page:
    picture = Image.fromarray(page.picture).resize((width, height), Image.Resampling.LANCZOS)
    return replace(page, picture=np.array(picture))


def test_a_page_that_takes_too_much_memory_is_read_smaller(qwen: ModelPair, limited: Limit) -> None:
    parser, page = PageParser(qwen, ParseSettings(**FIXED)), noise_page(168, 224)
    smaller = parser(scaled(page, 118, 157))
    tried = limited(24 * 32 - 1)  # patches of 7 pixels
    parsed = parser(page)
    assert tried[0] == 24 * 32
    assert tried[-1] < 24 * 32
    assert len(tried) == 2
    assert (parsed.status, parsed.mode) == (smaller.status, "approximate")
    assert parsed.notes == ["memory ran out: the page was read at 118 x 157 px"]
    assert parsed.raw == smaller.raw
    assert parsed.size == page.size
    # The next page begins as large as ever.
    assert parser(noise_page()).mode == "exact"


def test_a_page_that_never_fits_reports_how_far_it_was_tried(
    qwen: ModelPair, limited: Limit
) -> None:
    tried = limited(0)
    with pytest.raises(MemoryRanOutError, match=r"even at 35% of the page's width .*lower --dpi"):
        PageParser(qwen, ParseSettings(**FIXED))(noise_page(168, 224))
    assert tried == sorted(set(tried), reverse=True)  # each smaller than the one before it
    assert len(tried) == 4
