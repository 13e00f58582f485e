"""Forms in which models answer: what is written is read again, broken answers in part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from page_answers import page_text
from sooner.documents import PageDraft, Region
from sooner.documents.forms import PageForm
from sooner.documents.regions import resized
from sooner.documents.tables import Cell, from_otsl, grid, read_table, to_html, to_otsl
from sooner.tasks.parse.families import FORMS

SIZE = (1000, 1400)

TABLE = to_html([[Cell("Fruit", columns=2)], [Cell("pear"), Cell("")], [Cell("plum"), Cell("2")]])

PAGE = [
    Region((100, 40, 900, 90), "Title", 0, ["A report on fruit"], 1),
    Region((100, 100, 900, 140), "Section-header", 1, ["What grows"], 2),
    Region((100, 150, 900, 250), "Text", 2, ["Pears & plums < 3 are fruit."]),
    Region((100, 260, 900, 290), "List-item", 3, ["- wash"]),
    Region((100, 290, 900, 320), "List-item", 4, ["- peel"]),
    Region((100, 330, 900, 390), "Formula", 5, ["x^2 < 3"]),
    Region((100, 400, 900, 430), "Caption", 6, ["Table 1: prices"]),
    Region((100, 440, 900, 700), "Table", 7, [TABLE]),
    Region((100, 710, 900, 900), "Picture", 8),
    Region((100, 910, 900, 930), "Caption", 9, ["Figure 1: a pear"]),
    Region((100, 1300, 900, 1340), "Footnote", 10, ["1 of last year"]),
]

BOXED = ["dots", "deepseek", "doctags", "chandra-2"]


def read_back(form: PageForm, regions: list[Region]) -> list[Region]:
    answer = form.read(page_text(form, PageDraft(regions, size=SIZE)))
    assert not answer.repaired
    assert len(answer.written) == len(answer.regions)
    return resized(answer.regions, form.frame, SIZE)


@pytest.mark.parametrize("name", BOXED)
def test_a_page_that_is_written_is_read_again(name: str) -> None:
    form = FORMS[name]
    regions = read_back(form, PAGE)
    assert [region.order for region in regions] == list(range(len(PAGE)))
    for before, after in zip(PAGE, regions, strict=True):
        assert before.bbox is not None
        assert after.bbox is not None
        assert all(abs(a - b) <= 2 for a, b in zip(before.bbox, after.bbox, strict=True))
        listed = name == "deepseek" and before.label == "List-item"
        assert after.label == ("Text" if listed else before.label)
        texts = [form_text(item) for item in (before, after)]
        assert texts[0] == texts[1]


def form_text(region: Region) -> object:
    """A region's text without what its form may leave open: marks of headings, spans of tables."""
    text = region.drafts[0] if region.drafts else ""
    return grid(read_table(text)) if region.label == "Table" else text.lstrip("# ").strip("$")


WORDS = st.lists(
    st.sampled_from(["pear", "a_b", "3 < 4", "x & y", "3.5%", "梨", "«ça»"]), min_size=1
)
BOXES = st.tuples(
    st.integers(0, 400), st.integers(0, 600), st.integers(10, 500), st.integers(10, 700)
)
LABELS = (
    *("Text", "Section-header", "Footnote", "Formula", "Caption", "List-item", "Picture"),
    "Table",
)


@st.composite
def pages(draw: st.DrawFn) -> list[Region]:
    regions = []
    for order in range(draw(st.integers(1, 5))):
        left, top, width, height = draw(BOXES)
        label, text = draw(st.sampled_from(LABELS)), " ".join(draw(WORDS))
        drafts = [f"- {text}" if label == "List-item" else text]
        if label == "Table":
            drafts = [to_html([[Cell(text), Cell("")], [Cell("1"), Cell(text)]])]
        box = (left, top, left + width, top + height)
        level = 2 if label == "Section-header" else 0
        drafts = [] if label == "Picture" else drafts
        regions.append(Region(box, label, order, drafts, level))
    return regions


@pytest.mark.parametrize("name", BOXED)
@given(regions=pages())
def test_any_page_is_read_again(name: str, regions: list[Region]) -> None:
    form = FORMS[name]
    result = read_back(form, regions)
    assert [form_text(region) for region in result] == [form_text(region) for region in regions]
    assert page_text(form, PageDraft(result, size=SIZE)) == page_text(
        form, PageDraft(regions, size=SIZE)
    )


@pytest.mark.parametrize("name", BOXED)
@given(data=st.data())
def test_an_answer_that_was_cut_off_keeps_what_came_before(name: str, data: st.DataObject) -> None:
    form = FORMS[name]
    whole = page_text(form, PageDraft(PAGE, size=SIZE))
    at = data.draw(st.integers(0, len(whole)))
    reading = form.read(whole[:at])
    texts = [form_text(region) for region in form.read(whole).regions]
    prefix = [form_text(region) for region in reading.regions]
    assert prefix[:-1] == texts[: max(len(prefix) - 1, 0)] or name == "deepseek"
    assert len(prefix) <= len(texts)


PARTS = [
    *("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "[[1, 2, 3, 4]]", "text", "a\n", "|"),
    *("<otsl>", "</otsl>", "<loc_3>", "<fcel>", "<nl>", "<lcel>", "<ucel>", "<text>", "</text>"),
    *("<picture>", "</doctag>", "<div data-bbox='1 2 3' data-label='Text'>", "</div>", "<p>"),
    *("{", '"bbox": [1'),
]


@pytest.mark.parametrize("name", BOXED)
@given(parts=st.lists(st.sampled_from(PARTS)))
def test_nonsense_never_raises_and_words_outside_are_reported(name: str, parts: list[str]) -> None:
    reading = FORMS[name].read("".join(["lost", *parts]))
    assert reading.repaired
    assert all(region.drafts or region.bbox is not None for region in reading.regions)
    if name != "dots":
        assert reading.regions[0].drafts[0].startswith("lost")


def test_words_outside_of_any_element_stay_and_are_reported() -> None:
    for name in BOXED[1:]:
        reading = FORMS[name].read("I can't read this")
        assert reading.repaired
        assert [region.drafts for region in reading.regions] == [["I can't read this"]]


@st.composite
def tables(draw: st.DrawFn) -> list[list[Cell]]:
    """A grid of cells, some of which go over several rows and columns."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    used_cells: set[tuple[int, int]] = set()
    table: list[list[Cell]] = []
    for row in range(rows):
        table.append([])
        for column in range(columns):
            if (row, column) in used_cells:
                continue
            right = 1
            while (
                column + right < columns
                and (row, column + right) not in used_cells
                and draw(st.booleans())
            ):
                right += 1
            down = draw(st.integers(1, min(2, rows - row)))
            used_cells |= {(row + d, column + r) for d in range(down) for r in range(right)}
            text = draw(st.sampled_from(["", "pear", "a b", "3 < 4", "x|y"]))
            table[-1].append(Cell(text, down, right))
    return table


@given(table=tables())
def test_otsl_keeps_cells_and_their_spans(table: list[list[Cell]]) -> None:
    text = to_otsl(table)
    assert from_otsl(text) == table
    assert from_otsl(text.replace("<fcel>", "<ched>")) == table
    assert read_table(text) == table
    assert text.count("<nl>") == len(table)


def test_broken_otsl_is_read_as_far_as_possible() -> None:
    assert grid(from_otsl("<lcel><fcel>a<nl><xcel><fcel>b")) == [["", "a"], ["", "b"]]
    assert grid(from_otsl("<ucel><fcel>a<lcel><lcel><nl><fcel>b<nl>")) == [
        ["", "a", "", ""],
        ["b", "", "", ""],
    ]
    assert to_otsl([[Cell("a"), Cell("b")], [Cell("c")]]) == "<fcel>a<fcel>b<nl><fcel>c<ecel><nl>"


def test_what_docling_writes_is_what_is_written_here() -> None:
    """docling-core's own serializer, of the same page."""
    docling = pytest.importorskip("docling_core.types.doc")
    document = pytest.importorskip("docling_core.types.doc.document")
    whole = document.DoclingDocument(name="page")
    whole.add_page(1, document.Size(width=SIZE[0], height=SIZE[1]))

    def place(region: Region) -> object:
        left, top, right, bottom = region.bbox or (0, 0, 0, 0)
        origin = docling.CoordOrigin.TOPLEFT
        box = document.BoundingBox(l=left, t=top, r=right, b=bottom, coord_origin=origin)
        return document.ProvenanceItem(page_no=1, bbox=box, charspan=(0, 0))

    title, head, text, first, two, formula, *_ = PAGE
    whole.add_title(title.drafts[0], prov=place(title))
    whole.add_heading(head.drafts[0], level=1, prov=place(head))
    whole.add_text(docling.DocItemLabel.TEXT, text.drafts[0], prov=place(text))
    listed = whole.add_list_group()
    for item in (first, two):
        whole.add_list_item(
            item.drafts[0].removeprefix("- "), enumerated=False, parent=listed, prov=place(item)
        )
    whole.add_formula(formula.drafts[0], prov=place(formula))
    cells = [
        document.TableCell(
            text=words, start_row_offset_idx=row, end_row_offset_idx=row + 1,
            start_col_offset_idx=column, end_col_offset_idx=column + wide, col_span=wide,
            column_header=row == 0,
        )
        for row, column, wide, words in [
            (0, 0, 2, "Fruit"), (1, 0, 1, "pear"), (1, 1, 1, ""), (2, 0, 1, "plum"), (2, 1, 1, "2"),
        ]
    ]  # fmt: skip
    data = document.TableData(num_rows=3, num_cols=2, table_cells=cells)
    whole.add_table(data, prov=place(PAGE[7]))
    whole.add_picture(prov=place(PAGE[8]))
    page = [*PAGE[:6], PAGE[7], PAGE[8]]
    assert whole.export_to_doctags().strip() == page_text(
        FORMS["doctags"], PageDraft(page, size=SIZE)
    )
