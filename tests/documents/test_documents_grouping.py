"""Words as lines, lines as paragraphs and tables, and all of them as regions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sooner.documents import Line, Region
from sooner.documents.grouping import (
    blocks_of,
    is_formula,
    regions_of,
    rows_of,
    table_text,
    text_columns,
)
from sooner.documents.regions import around


def line(text: str, x: float, y: float, size: float = 10.0) -> Line:
    return Line(text, (x, y, x + 5 * len(text), y + size), size)


def test_lines_become_paragraphs() -> None:
    page = [line("one", 10, 10), line("two", 10, 22), line("far", 10, 60), line("beside", 100, 22)]
    page += [line("- item", 10, 72), line("  goes on", 16, 84), line("- next", 10, 96)]
    page += [line("LARGE", 10, 110, 20)]
    blocks = [[item.text for item in block] for block in blocks_of(page)]
    expected = [["one", "two"], ["beside"], ["far"], ["- item", "  goes on"], ["- next"], ["LARGE"]]
    assert sorted(blocks) == sorted(expected)


def test_cells_stay_in_their_columns() -> None:
    cells = [line("a", 10, 0), line("b", 50, 1), line("c", 90, 0), line("1", 10, 20)]
    assert table_text([*cells, line("3 x", 88, 21)]) == "a\tb\tc\n1\t\t3 x"


def test_a_layout_box_gives_its_lines_a_label() -> None:
    page = [line("Not large", 10, 10), line("a", 10, 50), line("b", 60, 50), line("alone", 10, 200)]
    layout = [
        Region((5, 5, 100, 25), "Title"),
        Region((5, 45, 100, 65), "Table"),
        Region((5, 100, 100, 150), "Picture"),
        Region((150, 100, 200, 150), "Text"),
    ]
    regions = regions_of(page, (300, 400), layout)
    assert [(region.label, region.drafts) for region in regions] == [
        ("Title", ["Not large"]),
        ("Table", ["a\tb"]),
        ("Picture", []),
        ("Text", ["alone"]),
    ]
    assert regions[1].bbox == (5, 45, 100, 65)


def test_a_table_is_seen_without_a_layout() -> None:
    rows = [["Fruit", "Count"], ["Apples", "12"], ["Pears", "7"]]
    cells = [line(text, 10 + 90 * n, 100 + 14 * m) for m, row in enumerate(rows)
             for n, text in enumerate(row)]  # fmt: skip
    regions = regions_of([line("Some text above it.", 10, 50), *cells], (300, 400))
    assert [region.label for region in regions] == ["Text", "Table"]
    assert regions[1].drafts == ["Fruit\tCount\nApples\t12\nPears\t7"]


def test_two_columns_of_text_are_no_table() -> None:
    left = [line("six words are on this line", 10, 100 + 14 * n) for n in range(4)]
    right = [line("and as many on that one", 160, 100 + 14 * n) for n in range(4)]
    regions = regions_of([*left, *right], (300, 400))
    assert [(region.label, region.bbox) for region in regions] == [
        ("Text", around(item.bbox for item in left)),
        ("Text", around(item.bbox for item in right)),
    ]


def test_lines_that_are_read_row_by_row_are_put_into_columns_of_text() -> None:
    """The small table of a column is divided by no gutter, and what crosses stands for itself."""
    head = [line("a heading of the page that crosses both of its columns", 10, 10, 20)]
    left = [line("three more words", 10, 40 + 14 * n) for n in range(3)]
    cells = [line("ab", 10, 96), line("cd", 90, 96), line("12", 10, 110), line("34", 90, 110)]
    right = [line("and those beside it", 170, 40 + 14 * n) for n in range(6)]
    page = [cell for row in rows_of([*head, *left, *cells, *right]) for cell in row]
    first, second, third = text_columns(page)
    assert first == head
    assert sorted(second, key=lambda item: item.bbox) == sorted(
        [*left, *cells], key=lambda item: item.bbox
    )
    assert third == right
    assert text_columns(cells) == [cells]
    assert text_columns([]) == [[]]


def test_a_formula_has_no_words() -> None:
    assert all(map(is_formula, ["p + 78 = q", "y = sin x", "a ≤ 3 + b"]))
    assert not any(map(is_formula, ["x = all of it", "= 3", "12 34 56", "a b c"]))
    grid = [line("a", 10, 50), line("b", 60, 50), line("1", 10, 64), line("2", 60, 64)]
    regions = regions_of(grid, (300, 400), [Region((5, 45, 100, 80), "Formula")])
    assert [(region.label, region.drafts) for region in regions] == [("Table", ["a\tb\n1\t2"])]
    (formula,) = regions_of([line("p + 78 = q", 10, 150)], (300, 400))
    assert formula.label == "Formula"


numbers = st.integers(0, 280)
anywhere = st.builds(
    lambda text, x, y, size: line(text, x, y, size),
    st.text("ab1. -", min_size=1, max_size=12).filter(lambda text: text.strip() == text != ""),
    numbers,
    numbers,
    st.sampled_from([8.0, 10.0, 24.0]),
)
areas = st.builds(
    lambda x, y, w, h, label: Region((x, y, x + w, y + h), label),
    *(numbers, numbers, numbers, numbers),
    st.sampled_from(["Text", "Table", "Title", "Picture", "Formula", "List-item"]),
)


@given(st.lists(anywhere, max_size=12), st.lists(areas, max_size=4))
def test_no_line_is_lost_or_doubled(page: list[Line], layout: list[Region]) -> None:
    regions = regions_of(page, (300, 400), layout)
    texts = " ".join(draft for region in regions for draft in region.drafts).split()
    assert sorted(texts) == sorted(" ".join(item.text for item in page).split())
    assert [region.order for region in regions] == list(range(len(regions)))


def test_cells_next_to_a_column_of_text_stay_out_of_it() -> None:
    left = [line(f"number {n} of the left text", 10, 100 + 14 * n) for n in range(6)]
    cells = [line(text, 170 + 70 * (n % 2), 100 + 14 * (n // 2)) for n, text in enumerate("abcd")]
    right = [line("the right column goes on", 160, 150 + 14 * n) for n in range(4)]
    regions = regions_of([*left, *cells, *right], (300, 400))
    assert [(region.label, region.drafts[0][:8]) for region in regions] == [
        ("Text", "number 0"),
        ("Table", "a\tb\nc\td"),
        ("Text", "the righ"),
    ]


def test_a_short_last_line_stays_with_its_paragraph() -> None:
    rows = ["words that go from the left edge to the right one"] * 2 + ["a short end"]
    page = [line(text, 10, 50 + 14 * n) for n, text in enumerate([*rows, *rows, *rows])]
    assert len(regions_of(page, (300, 400))) == 1
