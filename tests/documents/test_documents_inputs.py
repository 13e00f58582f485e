"""Finding documents, and page ranges."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sooner.documents import Document, PageRange, find_documents
from sooner.documents.inputs import _apart
from sooner.errors import SoonerError


def tree(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return root


def test_a_folder_is_searched_to_the_bottom_in_natural_order(tmp_path: Path) -> None:
    tree(tmp_path, "b/p10.png", "b/p2.PNG", "a.pdf", "notes.txt", ".cache/c.pdf")
    documents = find_documents([tmp_path])
    assert [str(document.place) for document in documents] == ["a.pdf", "b/p2.PNG", "b/p10.png"]
    assert [document.path for document in documents] == [
        tmp_path / entry.place for entry in documents
    ]


def test_results_of_earlier_runs_are_no_documents(tmp_path: Path) -> None:
    names = ("a.pdf", "out/a.pdf/page-0001.png", "out/b/c.png", "deep/out/d.png", "outer/e.png")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    for folder in ("out", "deep/out"):
        (tmp_path / folder / ".sooner" / "pages").mkdir(parents=True)
    assert [document.place.as_posix() for document in find_documents([tmp_path])] == [
        "a.pdf",
        "outer/e.png",
    ]
    named = find_documents([tmp_path / "out"])  # what is named itself is searched
    assert [document.place.as_posix() for document in named] == ["a.pdf/page-0001.png", "b/c.png"]


def test_patterns_and_files_are_listed_once(tmp_path: Path) -> None:
    tree(tmp_path, "in/one.pdf", "in/two.pdf", "in/deep/three.pdf", "in/x.doc")
    documents = find_documents([tmp_path / "in/one.pdf", str(tmp_path / "in/**/*.pdf")])
    assert sorted(str(document.place) for document in documents) == [
        "deep/three.pdf",
        "one.pdf",
        "two.pdf",
    ]


def test_documents_of_the_same_name_keep_apart(tmp_path: Path) -> None:
    tree(tmp_path, "a/x.pdf", "b/x.pdf", "b/y.pdf")
    files = [tmp_path / name for name in ("a/x.pdf", "b/x.pdf", "b/y.pdf")]
    places = [str(document.place) for document in find_documents(files)]
    assert places == ["a/x.pdf", "b/x.pdf", "y.pdf"]
    # Nor is the place that tells them apart that of another.
    files.append(tree(tmp_path / "c", "a/x.pdf"))
    places = [str(document.place) for document in find_documents(files)]
    assert places == ["a/x.pdf", "b/x.pdf", "y.pdf", "c/a/x.pdf"]

    urls = ("s3://bucket/in/x.pdf", "gs://bucket/in/x.pdf", "https://h/x.pdf?v=1")
    documents = [Document(Path("x.pdf"), Path("x.pdf"), url) for url in urls]
    places = [document.place.as_posix() for document in _apart(documents)]
    assert places == ["s3/bucket/in/x.pdf", "gs/bucket/in/x.pdf", "https/h/x.pdf?v=1/x.pdf"]


def test_what_is_no_document_is_refused_by_name(tmp_path: Path) -> None:
    tree(tmp_path, "letter.pdff", "empty/notes.md")
    with pytest.raises(SoonerError, match=r"did you mean '\.pdf'"):
        find_documents([tmp_path / "letter.pdff"])
    with pytest.raises(SoonerError, match="has no documents"):
        find_documents([tmp_path / "empty"])
    with pytest.raises(SoonerError, match=r"\*\.png' has no documents"):
        find_documents([str(tmp_path / "*.png")])
    with pytest.raises(SoonerError, match=r"does not exist.*letter\.pdff"):
        find_documents([tmp_path / "letter.pdf"])


def test_ranges_begin_at_1() -> None:
    pages = PageRange.parse(" 1-3, 7,2 ,9-")
    assert pages.select(10) == [1, 2, 3, 7, 9, 10]
    assert PageRange().select(3) == [1, 2, 3]
    assert pages.missing(10) == ""


def test_ranges_name_the_pages_that_a_document_lacks() -> None:
    assert PageRange.parse("1-4,7").missing(4) == "7"
    assert PageRange.parse("3-6").missing(4) == ""  # a range is what there is of it
    assert PageRange.parse("5-6,9-").missing(4) == "5-6,9-"
    assert PageRange.parse("2-").missing(4) == ""


@pytest.mark.parametrize("text", ["", "a", "1-2-3", "-4", "1,,2", "1.5", "0-3", "0", "5-2"])
def test_bad_ranges_are_refused_in_a_line(text: str) -> None:
    with pytest.raises(SoonerError) as error:
        PageRange.parse(text)
    assert f"'{text}'" in str(error.value)
    assert "\n" not in str(error.value)


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), min_size=1), st.integers(1, 25))
def test_a_range_is_its_numbers(parts: list[tuple[int, int]], count: int) -> None:
    text = ",".join(f"{first}-{first + more}" for first, more in parts)
    expected = {n for first, more in parts for n in range(first, first + more + 1)}
    pages = PageRange.parse(text)
    assert set(pages.select(count)) == {n for n in expected if n <= count}
    assert bool(pages.missing(count)) == any(first > count for first, _ in parts)
