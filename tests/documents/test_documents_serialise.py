"""Regions in a target's own format, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.documents import DOTS, PageDraft, Region, Style, draft_texts, to_markdown
from sooner.documents.boxed_forms import LayoutJson
from sooner.documents.serialise import bare_formula, items, reflowed, written
from sooner.documents.tables import (
    Cell,
    grid,
    read_table,
    to_html,
    to_pipes,
)
from sooner.errors import SoonerError

PAGE = [
    Region((0, 0, 100, 20), "Title", 0, ["A\nTitle"]),
    Region((0, 30, 100, 40), "Section-header", 1, ["1 Method"], 3),
    Region((0, 50, 100, 80), "Text", 2, ["Lines are hyphen-\nated and\njoined."]),
    Region((0, 90, 100, 95), "List-item", 3, ["• one\nmore"]),
    Region((0, 96, 100, 99), "List-item", 4, ["2) two"]),
    Region((0, 100, 100, 120), "Formula", 5, ["$$ E = mc^2 $$"]),
    Region((0, 130, 100, 160), "Table", 6, ["a\tb\n1\t<2"]),
    Region((0, 170, 100, 180), "Picture", 7),
    Region((0, 190, 100, 199), "Page-footer", 8, ["17"]),
]


def test_a_page_as_markdown() -> None:
    assert to_markdown(PAGE, Style(furniture=False)) == (
        "# A Title\n\n### 1 Method\n\nLines are hyphenated and joined.\n\n- one more\n2) two\n\n"
        "$$\nE = mc^2\n$$\n\n| a | b |\n| --- | --- |\n| 1 | <2 |\n"
    )
    assert to_markdown(PAGE).endswith("\n\n17\n")
    assert to_markdown([]) == ""


def test_drafts_are_written_as_the_target_writes() -> None:
    draft = PageDraft(
        [
            Region((10, 20, 30, 40), "Formula", 0, ["\\[x\\]", "$x$", "y"]),
            Region((10, 50, 30, 60), "Table", 1, ["<table><tr><td>a</td></tr></table>", "a"]),
            Region((10, 70, 30, 80), "Picture", 2),
        ],
        size=(100, 100),
    )
    assert draft_texts(draft) == ["$$\nx\n$$", "$$\ny\n$$", "| a |\n| --- |"]
    style = Style(tables="html", formulas="bare")
    assert draft_texts(draft, style) == ["x", "y", "<table><tr><td>a</td></tr></table>"]
    assert draft_texts(draft, Style(formulas="spaced"))[0] == "$$ x $$"
    assert LayoutJson().texts(draft.regions[0], draft.size, (200, 50))[0] == (
        '{"bbox": [20, 10, 60, 20], "category": "Formula", "text": "$$x$$"}'
    )
    (picture,) = LayoutJson().texts(draft.regions[2], draft.size)
    assert picture == '{"bbox": [10, 70, 30, 80], "category": "Picture"}'


def test_unknown_ways_are_refused() -> None:
    with pytest.raises(SoonerError, match="did you mean 'pipes'"):
        Style(tables="pipe")  # type: ignore[arg-type]
    with pytest.raises(SoonerError, match="unknown formula style"):
        Style(formulas="latex")  # type: ignore[arg-type]


def test_lines_are_joined_as_a_reader_does() -> None:
    assert reflowed("well-\nknown to state-of-the-\nArt") == "wellknown to state-of-the- Art"
    assert reflowed("one\ntwo\n\nthree\n  four ") == "one two\n\nthree four"
    assert reflowed("第一\n行 and\nmore") == "第一行 and more"
    assert reflowed("```\na\n b\n```") == "```\na\n b\n```"


def test_items_get_their_marks() -> None:
    assert items("● one\n(a) two\nmore of it\n12. three") == "- one\n(a) two more of it\n12. three"
    assert items("no mark") == "- no mark"


@pytest.mark.parametrize(
    "text", ["$$x+1$$", "$$\nx+1\n$$", "\\[x+1\\]", "\\(x+1\\)", "$x+1$", " x+1 ", "`x+1`"]
)
def test_formulas_lose_what_is_around_them(text: str) -> None:
    assert bare_formula(text) == "x+1"


def test_a_text_with_formulas_in_it_is_no_formula() -> None:
    assert bare_formula("$a$ and $b$") == "$a$ and $b$"


cells = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=6)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=1, max_size=4)
)


@given(tables)
def test_tables_survive_html_and_pipes(rows: list[list[str]]) -> None:
    table = [[Cell(text) for text in row] for row in rows]
    assert grid(read_table(to_html(table))) == rows
    if not any("\\" in cell for row in rows for cell in row):
        assert grid(read_table(to_pipes(table))) == rows


def test_a_row_of_dashes_is_no_rule() -> None:
    rows = [["--"], ["---"], ["a"]]
    assert grid(read_table(to_pipes([[Cell(text) for text in row] for row in rows]))) == rows


def test_spans_keep_columns_above_each_other() -> None:
    table = read_table(
        "<html><body><table><tr><th rowspan='2'>A</th><td colspan=2>B &amp; C</td></tr>"
        "<tr><td>x<br>y<td><b>z</b></tr></table></body></html>"
    )
    assert table[0] == [Cell("A", rows=2), Cell("B & C", columns=2)]
    assert grid(table) == [["A", "B & C", ""], ["", "x y", "z"]]
    assert 'rowspan="2"' in to_html(table)


def test_a_broken_table_is_no_reason_to_fail() -> None:
    assert grid(read_table("<table><tr><td rowspan=x>a<tr><td>b")) == [["a"], ["b"]]
    assert read_table("") == []


def test_layout_json_survives() -> None:
    pairs = [(region, written(region, text, DOTS)) for region in PAGE for text in region.drafts]
    cells = [LayoutJson().element(region, text, (100, 200)) for region, text in pairs]
    parse = LayoutJson().read(f"[{', '.join(cells)}]")
    assert not parse.repaired
    assert [(region.bbox, region.label) for region in parse.regions] == [
        (region.bbox, region.label) for region, _ in pairs
    ]
    assert [region.drafts for region in parse.regions] == [[text] for _, text in pairs]


ANSWER = json.dumps(
    [
        {"bbox": [1, 2, 3, 4], "category": "Title", "text": '# A "quoted" title, {"bbox": no}'},
        {"bbox": [5, 6, 7, 8], "category": "Formula", "text": "\\frac{a}{b} \\alpha\nsecond"},
        {"bbox": [9, 9, 10, 10], "category": "Picture"},
    ]
)


def test_an_answer_may_be_cut_off_anywhere() -> None:
    whole = LayoutJson().read(ANSWER).regions
    ends = [ANSWER.index('"}') + 2, ANSWER.index('second"}') + 8, len(ANSWER) - 1]
    assert [ANSWER[end - 1] for end in ends] == ["}"] * 3
    for cut in range(len(ANSWER)):
        parse = LayoutJson().read(ANSWER[:cut])
        finished = sum(end <= cut for end in ends)
        assert parse.repaired
        assert parse.regions[:finished] == whole[:finished]
        assert len(parse.regions) in (finished, finished + 1)
        for part, full in zip(parse.regions[finished:], whole[finished:], strict=False):
            assert part.bbox == full.bbox
            assert all(full.drafts[0].startswith(text) for text in part.drafts)


def test_latex_that_was_not_escaped_is_repaired() -> None:
    text = r'[{"bbox": [1, 2, 3, 4], "category": "Formula", "text": "\alpha \frac{1}{2}"}]'
    parse = LayoutJson().read(text)
    assert parse.repaired
    assert parse.regions[0].drafts == [r"\alpha \frac{1}{2}"]


def test_code_blocks_objects_and_rubbish() -> None:
    assert LayoutJson().read(f"```json\n{ANSWER}\n```").regions == LayoutJson().read(ANSWER).regions
    wrapped = LayoutJson().read('{"layout": [{"bbox": [1, 2, 3, 4], "category": "Text"}]}')
    assert len(wrapped.regions) == 1
    for text in ("", "I can't read this.", "[[1, 2]]", "null", '{"bbox": '):
        assert LayoutJson().read(text).regions == []
    broken = '[{"bbox": [1, 2], "category": "Text", "text": "a"}, {"bbox": 7 8, "text"}, '
    parse = LayoutJson().read(broken + ANSWER[1:])
    assert [region.label for region in parse.regions][-3:] == ["Title", "Formula", "Picture"]
