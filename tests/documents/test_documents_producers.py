"""PDFs of several producers: their words stand in a draft in the order in which they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pypdfium2")
pytest.importorskip("bidi")

from documents.reading import markdown, share_in_order, words
from sooner.documents import Page, read_pages
from sooner.documents.drafters import TextLayer
from sooner.documents.tables import Cell, grid, read_table

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pdf")), ids=lambda path: path.stem)
def test_a_draft_has_the_words_that_were_typed(path: Path) -> None:
    pages = [page for page in read_pages(path) if isinstance(page, Page)]
    assert all(page.text is not None and not page.text.problem for page in pages)
    text = "\n\n".join(map(markdown, pages))
    assert share_in_order(words(text), words(path.with_suffix(".txt").read_text())) >= 0.97


def test_a_table_keeps_cells_that_go_over_rows_and_columns() -> None:
    (page,) = read_pages(DATA / "reportlab-merged-cells.pdf")
    assert isinstance(page, Page)
    heading, table = TextLayer()(page).regions
    assert (heading.label, table.label) == ("Section-header", "Table")
    head = [Cell("Region", rows=2), Cell("2023", columns=2), Cell("2024", columns=2)]
    assert read_table(table.drafts[0])[0] == head
    assert grid(read_table(table.drafts[0]))[2:] == [
        ["North", "10", "4", "12", "5"], ["South", "20", "9", "21", "8"],
        ["Total", "30", "13", "33", "13"],
    ]  # fmt: skip
    assert markdown(page).count('colspan="2"') == 2


def test_a_bold_head_stays_with_its_table() -> None:
    (page,) = read_pages(DATA / "browser.pdf")
    assert isinstance(page, Page)
    assert "| Part | Slope, m/km | Load |\n| --- |" in markdown(page)


def test_stamps_and_watermarks_are_no_part_of_the_text() -> None:
    (page,) = read_pages(DATA / "reportlab-stamped.pdf")
    assert isinstance(page, Page)
    regions = TextLayer()(page).regions
    assert regions[0].label == "Title"
    assert regions[0].drafts == ["On clocks in towers"]
    aside = [region for region in regions if region.label == "Page-footer"]
    assert [region.drafts[0] for region in aside] == [
        "12", "DRAFT ONLY", "arXiv:2601.01234v2 [cs.CL] 3 Jan 2026",
    ]  # fmt: skip


def test_a_footnote_is_separated_from_the_text() -> None:
    (page,) = read_pages(DATA / "latex-bitmap-fonts.pdf")
    assert isinstance(page, Page)
    (note,) = [region for region in TextLayer()(page).regions if region.label == "Footnote"]
    assert note.drafts[0].startswith("<sup>1</sup>")
    assert "unlikely.<sup>1</sup> Where" in markdown(page)
