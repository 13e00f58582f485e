"""docling's VLM pipeline parses PDFs through `sooner serve`, by the script in `examples/`.

docling is in no environment of this project: it brings models of its own. `SOONER_DOCLING` names a
Python that has it; without that, and without docling beside us, these tests are skipped.
"""

from __future__ import annotations

import functools
import io
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from serve.robots import WAIT
from serve.test_chat_process import Started, start

CLIENT = Path(__file__).parents[2] / "examples" / "docling_client.py"


@functools.cache
def python() -> str | None:
    """A Python that imports docling."""
    path = os.environ.get("SOONER_DOCLING", sys.executable)
    done = subprocess.run([path, "-c", "import docling"], capture_output=True, check=False)
    return path if done.returncode == 0 else None


pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif("python() is None", reason="docling is not here; see SOONER_DOCLING"),
]


def pdf(path: Path, pictures: Sequence[np.ndarray]) -> Path:
    """A PDF whose pages are pictures `[height, width, 3]`, a point a pixel."""
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    utils = pytest.importorskip("reportlab.lib.utils")
    from PIL import Image

    made = canvas.Canvas(str(path))
    for pixels in pictures:
        height, width = pixels.shape[:2]
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        buffer.seek(0)
        made.setPageSize((width, height))
        made.drawImage(utils.ImageReader(buffer), 0, 0, width, height)
        made.showPage()
    made.save()
    return path


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    started = start(tmp_path_factory.mktemp("served"), "miniature:document")
    yield started
    started.process.kill()
    started.process.wait()


def parsed(reader: Started, path: Path, *options: str, status: str = "success") -> str:
    """What docling makes of a PDF."""
    command = [
        python() or "", str(CLIENT), str(path), "-o", str(path.parent / "out"),
        "--url", reader.address, *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{path}: {status}, " in done.stdout, done.stdout + done.stderr
    return (path.parent / "out" / f"{path.stem}.md").read_text(encoding="utf-8")


def words(text: str) -> list[str]:
    """Words alone: docling writes its own Markdown (escapes, bullets, tables)."""
    return [word for word in text.replace("\\", "").split() if any(map(str.isalnum, word))]


def test_docling_reads_what_is_on_the_pages(reader: Started, tmp_path: Path) -> None:
    from rapidfuzz.distance import Levenshtein

    from sooner_lab.worlds.document.render import draw, rgb
    from sooner_lab.worlds.document.world import sample_page

    pages = [sample_page(np.random.default_rng(9_000_100 + index)) for index in range(3)]
    path = pdf(tmp_path / "three.pdf", [rgb(draw(page)) for page in pages])
    text = parsed(reader, path, "--scale", "1", "--prompt", "read the page", "--pages", "3")
    expected = [word for page in pages for word in words(page.markdown)]
    assert Levenshtein.normalized_similarity(words(text), expected) > 0.95
