"""DocTags as SmolDocling and granite-docling write them, whole and cut off."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

pytest.importorskip("docling_core")

from sooner.documents import PageDraft, Region
from sooner.documents.forms import FormAnswer
from sooner.documents.tables import grid, read_table
from sooner.errors import SoonerError
from sooner.tasks.parse.answers import read
from sooner.tasks.parse.families import FORMS
from sooner.tasks.parse.formats import render_document
from sooner.tasks.parse.result import ParsedPage, parsed_regions
from tasks.pages_of import INFO

SIZE = (1000, 1000)

ELEMENTS = [
    "<page_header><loc_60><loc_20><loc_440><loc_28>Orchards Quarterly</page_header>",
    "<title><loc_60><loc_40><loc_300><loc_52>On Fruit & Nuts</title>",
    "<section_header_level_1><loc_60><loc_60><loc_200><loc_70>1 Prices</section_header_level_1>",
    "<section_header_level_2><loc_60><loc_72><loc_200><loc_80>1.1 Pears</section_header_level_2>",
    "<text><loc_60><loc_82><loc_440><loc_96>Pears & plums cost < 3.</text>",
    (
        "<unordered_list><list_item><loc_70><loc_98><loc_440><loc_104>wash</list_item>\n"
        "<list_item><loc_70><loc_106><loc_440><loc_112>2. peel</list_item>\n</unordered_list>"
    ),
    (
        "<ordered_list><list_item><loc_70><loc_114><loc_440><loc_120>boil</list_item>\n"
        "<list_item><loc_70><loc_122><loc_440><loc_128>serve</list_item>\n</ordered_list>"
    ),
    (
        "<otsl><loc_60><loc_140><loc_440><loc_200><ched>Fruit<ched>Price<lcel><nl>"
        "<ucel><ched>2024<ched>2025<nl><rhed>pear<fcel>1<fcel>2<nl><rhed>plum<ecel><fcel>3<nl>"
        "<caption><loc_60><loc_130><loc_300><loc_138>Table 1: prices</caption></otsl>"
    ),
    "<formula><loc_100><loc_210><loc_300><loc_220>p = \\frac{a}{b} < 3</formula>",
    ("<code><loc_60><loc_230><loc_440><loc_250><_Python_>def pear(n):\n    return n <= 3</code>"),
    (
        "<picture><loc_60><loc_260><loc_300><loc_330><photograph>"
        "<caption><loc_60><loc_332><loc_300><loc_340>Figure 1: a pear</caption></picture>"
    ),
    (
        "<chart><loc_60><loc_345><loc_300><loc_400><bar_chart><ched>year<ched>pears<nl>"
        "<fcel>2024<fcel>7<nl></chart>"
    ),
    "<footnote><loc_60><loc_450><loc_440><loc_456>1 of last year</footnote>",
    "<page_footer><loc_240><loc_480><loc_260><loc_486>7</page_footer>",
]

ANSWER = "<doctag>" + "\n".join(ELEMENTS) + "\n</doctag>"


def answer_of(text: str) -> FormAnswer:
    return FORMS["doctags"].read(text)


def report(regions: list[Region]) -> list[tuple[str, int, str]]:
    texts = [(region, region.drafts[0] if region.drafts else "") for region in regions]
    return [
        (region.label, region.level, text)
        for region, text in texts
        if not text.startswith("<table")
    ]


def test_a_page_in_the_published_form_is_read_whole() -> None:
    reading = answer_of(ANSWER)
    assert not reading.repaired
    assert report(reading.regions) == [
        ("Page-header", 0, "Orchards Quarterly"),
        ("Title", 1, "On Fruit & Nuts"),
        ("Section-header", 2, "1 Prices"),
        ("Section-header", 3, "1.1 Pears"),
        ("Text", 0, "Pears & plums cost < 3."),
        ("List-item", 0, "- wash"),
        ("List-item", 0, "2. peel"),
        ("List-item", 0, "1. boil"),
        ("List-item", 0, "2. serve"),
        ("Caption", 0, "Table 1: prices"),
        ("Formula", 0, "p = \\frac{a}{b} < 3"),
        ("Text", 0, "```python\ndef pear(n):\n    return n <= 3\n```"),
        ("Picture", 0, ""),
        ("Caption", 0, "Figure 1: a pear"),
        ("Footnote", 0, "1 of last year"),
        ("Page-footer", 0, "7"),
    ]
    table, chart = [region for region in reading.regions if "<table" in "".join(region.drafts)]
    assert (table.label, chart.label) == ("Table", "Picture")
    assert grid(read_table(table.drafts[0])) == [
        ["Fruit", "Price", ""], ["", "2024", "2025"], ["pear", "1", "2"], ["plum", "", "3"],
    ]  # fmt: skip
    assert read_table(table.drafts[0])[0][1].columns == 2
    assert grid(read_table(chart.drafts[0])) == [["year", "pears"], ["2024", "7"]]
    assert table.bbox == (60, 140, 440, 200)
    assert all(region.bbox is not None for region in reading.regions)


@pytest.mark.parametrize("number", range(len(ELEMENTS)))
def test_a_page_that_is_cut_off_keeps_all_before_the_cut(number: int) -> None:
    """Cut at every letter of an element: nothing before it changes, nothing of it is made up."""
    before = "<doctag>" + "".join(f"{element}\n" for element in ELEMENTS[:number])
    complete, whole = answer_of(before).regions, answer_of(ANSWER).regions
    for cut in range(1, len(ELEMENTS[number])):
        reading = answer_of(before + ELEMENTS[number][:cut])
        assert report(reading.regions[: len(complete)]) == report(complete)
        assert len(complete) <= len(reading.regions) <= len(whole)
        last = "".join(reading.regions[-1].drafts) if len(reading.regions) > len(complete) else ""
        assert not re.search(r"</?(?:loc|otsl|chart|nl|[felucxr]c?(?:el|ed)l?)\b", last)


def test_keys_values_and_what_stands_between_pages_leave_no_tags() -> None:
    reading = answer_of(
        "<doctag><key_value_region><loc_1><loc_2><loc_3><loc_4><key_0><loc_1><loc_2><loc_3><loc_4>"
        "From:<link_1></key_0><value_1><loc_5><loc_6><loc_7><loc_8>Ann</value_1>"
        "</key_value_region>\n<page_break>\n<text><loc_1><loc_2><loc_3><loc_4><loc_5><loc_6>"
        "<loc_7><loc_8>over two columns</text></doctag><end_of_utterance>"
    )
    assert not reading.repaired
    assert [region.drafts for region in reading.regions] == [["From:\nAnn"], ["over two columns"]]


def document_of(text: str) -> Any:
    """The page as sooner's file of docling, read by docling-core."""
    core = pytest.importorskip("docling_core.types.doc")
    reading = read(text, "doctags", PageDraft([]), SIZE, None)
    regions = parsed_regions(reading.regions, SIZE)
    page = ParsedPage(
        "a.pdf", 1, regions=regions, markdown=reading.markdown, raw=text, size=SIZE, form="doctags"
    )
    written = b"".join(render_document("docling", [page], INFO))
    return core.DoclingDocument.model_validate_json(written)


def test_our_file_has_what_was_read() -> None:
    ours = document_of(ANSWER)
    assert [item.captions[0].resolve(ours).text for item in ours.tables] == ["Table 1: prices"]
    assert [len(item.captions) for item in ours.pictures] == [1, 0]
    cells = [cell.text for cell in ours.pictures[1].meta.tabular_chart.chart_data.table_cells]
    assert cells == ["year", "pears", "2024", "7"]
    assert [item.code_language.value for item in ours.texts if item.label.value == "code"] == [
        "Python"
    ]
    layers = {item.text: item.content_layer.value for item in ours.texts}
    assert layers["Orchards Quarterly"] == layers["7"] == "furniture"


def test_a_page_that_is_cut_off_is_a_document_too() -> None:
    texts: list[str] = []
    for cut in range(0, len(ANSWER), 29):
        made = document_of(ANSWER[:cut])
        lines = [item.text for item in made.texts]
        assert lines[: len(texts) - 1] == texts[:-1]
        texts = lines
    assert len(texts) > 12


def test_what_reads_doctags_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docling_core.types.doc", None)
    with pytest.raises(SoonerError, match=r"pip install 'sooner\[docling\]'"):
        FORMS["doctags"].check()
