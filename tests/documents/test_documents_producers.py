"""PDFs of several producers: their words stand in a draft in the order in which they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pypdfium2")
pytest.importorskip("bidi")

from documents.reading import markdown, share_in_order, words
from sooner.documents import Page, read_pages

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pdf")), ids=lambda path: path.stem)
def test_a_draft_has_the_words_that_were_typed(path: Path) -> None:
    pages = [page for page in read_pages(path) if isinstance(page, Page)]
    assert all(page.text is not None and page.text.good for page in pages)
    text = "\n\n".join(map(markdown, pages))
    assert share_in_order(words(text), words(path.with_suffix(".txt").read_text())) >= 0.97
