"""Lists whose bullets are no letters: drawn discs, and signs of fonts that don't say what they
draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from sooner.documents import Page, Word, read_pages, to_markdown
from sooner.documents.drafters import TextLayer
from sooner.documents.lines import lines_of, with_markers

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


@pytest.mark.parametrize("sign", ["\ufffd", "\ue000"])
@pytest.mark.parametrize("gap", [8, 25])
def test_signs_without_a_meaning_are_bullets(sign: str, gap: int) -> None:
    """As in the manual of gnuplot: near the item, and too far away to be of its line."""
    words = [Word(sign, (10, 10, 15, 20), 10.0)]
    words += [Word("splot", (15 + gap, 10, 40 + gap, 20), 10.0)]
    words += [Word("surfaces", (43 + gap, 10, 80 + gap, 20), 10.0)]
    assert [line.text for line in with_markers(lines_of(words))] == ["• splot surfaces"]


def test_a_sign_within_a_line_stays_what_it_is() -> None:
    words = [Word("set", (10, 10, 25, 20), 10.0), Word("\ufffd", (28, 10, 33, 20), 10.0)]
    assert [line.text for line in lines_of(words)] == ["set \ufffd"]
