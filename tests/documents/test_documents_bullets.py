"""Lists whose bullets are no letters: drawn discs, and signs of fonts that don't say what they
draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.documents import Page, read_pages, to_markdown
from sooner.documents.drafters import TextLayer

pytest.importorskip("reportlab")
pytest.importorskip("pypdfium2")

from documents import layouts

ITEMS = ["Wash the cup well.", "Fill it with hot water\nand wait for a minute.", "Drink."]


def test_discs_in_front_of_lines_are_bullets(tmp_path: Path) -> None:
    (page,) = read_pages(layouts.drawn_bullets(tmp_path / "list.pdf", ITEMS))
    assert isinstance(page, Page)
    draft = TextLayer()(page)
    assert [region.label for region in draft.regions] == ["List-item"] * 3
    assert to_markdown(draft.regions) == (
        "- Wash the cup well.\n- Fill it with hot water and wait for a minute.\n- Drink.\n"
    )
