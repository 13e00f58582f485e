"""Benchmarks read from small folders, scored, and refused where their layout is another."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation import benchmarks
from evaluation.benchmarks import FRUIT_PAGE, PAGES, PIPES, TABLE, TWO, block, omni_page
from sooner.errors import SoonerError
from sooner_lab.evaluation.documents import (
    lines_of,
    load,
    read_predictions,
    score,
    write_predictions,
)
from sooner_lab.evaluation.documents.intervals import interval


def omni(folder: Path, *pages: dict) -> Any:
    return load(benchmarks.omnidocbench(folder, list(pages) or None, pictures=False))


def test_a_page_written_as_it_is_has_no_errors(tmp_path: Path) -> None:
    result = score({"one": FRUIT_PAGE, "two": TWO}, omni(tmp_path))
    assert [result.value(name) for name in ("text_edit", "formula_edit", "order_edit")] == [0, 0, 0]
    assert result.value("table_teds") == result.value("table_teds_s") == 1
    assert result.value("text_edit", ("language", "english")) == 0
    assert not result.problems


def test_what_may_be_left_out_costs_nothing_either_way(tmp_path: Path) -> None:
    with_header = f"The Daily Fruit\n\n{FRUIT_PAGE}"
    result = score({"one": with_header, "two": TWO}, omni(tmp_path))
    assert result.value("text_edit") == 0
    surplus = score(
        {"one": f"{FRUIT_PAGE}\n\nNobody wrote this here", "two": TWO}, omni(tmp_path / "2")
    )
    assert surplus.value("text_edit") > 0


def test_missing_pages_count_as_empty_and_are_named(tmp_path: Path) -> None:
    result = score({"one": FRUIT_PAGE}, omni(tmp_path), failed={"two": "it is broken"})
    assert result.value("text_edit") == pytest.approx(0.5)
    assert result.value("order_edit") == pytest.approx(0.5)
    assert [(page.name, page.problem) for page in result.problems] == [("two", "it is broken")]
    assert "  two: it is broken" in list(lines_of(result))
    assert result.to_json()["empty"] == [{"page": "two", "why": "it is broken"}]


def test_figures_by_hand(tmp_path: Path) -> None:
    texts = [block("text_block", 1, text="abcdefgh"), block("text_block", 2, text="stuvwxyz")]
    two_tables = [block("table", 3, html=TABLE), block("table", 4, html=TABLE)]
    swapped = omni(tmp_path, omni_page("a.png", [*texts, *two_tables]))
    result = score({"a": f"stuvwxyz\n\nabcdefgX\n\n{PIPES}"}, swapped)
    assert result.value("text_edit") == pytest.approx(1 / 16)
    assert result.value("table_teds") == pytest.approx(0.5)  # the second is not there
    assert result.value("order_edit") == pytest.approx(3 / 4)  # 0 1 2 3 as 1 0 2


def test_text_that_the_layout_cut_is_a_single_block(tmp_path: Path) -> None:
    parts = [block("text_block", 1, text="One half"), block("text_block", 3, text="another half")]
    page = omni_page("a.png", [*parts, block("title", 2, text="Between the columns")])
    relation = {"source_anno_id": 1, "target_anno_id": 3, "relation_type": "truncated"}
    page["extra"]["relation"] = [relation]
    result = score({"a": "One half another half\n\n# Between the columns"}, omni(tmp_path, page))
    assert result.value("text_edit") == result.value("order_edit") == 0


def test_olmocr_passes_by_file_and_type(tmp_path: Path) -> None:
    benchmark = load(benchmarks.olmocr(tmp_path))
    assert [sample.name for sample in benchmark.samples] == [
        "a/x_pg1_repeat1", "b_pg1_repeat1", "b_pg2_repeat1", "c_pg1_repeat1",
    ]  # fmt: skip
    assert benchmark.left_out == {"math tests": 1}
    page = 'the "first" words alone'
    result = score({"a/x_pg1_repeat1": PIPES, "b_pg2_repeat1": page}, benchmark)
    assert result.value("passed", ("file", "table_tests")) == pytest.approx(1 / 2)
    assert result.value("passed", ("test", "order")) == 0
    assert result.value("passed", ("file", "multi_column")) == pytest.approx(2 / 3)
    assert result.value("passed", ("file", "baseline")) == pytest.approx(1 / 3)
    assert result.value("passed") == pytest.approx((1 / 2 + 2 / 3 + 1 / 3) / 3)  # of files


def test_a_majority_of_the_repeats_must_pass(tmp_path: Path) -> None:
    test = {"pdf": "x.pdf", "page": 1, "id": "1", "type": "present", "text": "yes"}
    benchmark = load(benchmarks.olmocr(tmp_path, {"one": [test]}))
    for answers, expected in ((["yes", "no", "yes"], 1), (["yes", "no"], 0)):
        result = score({"x_pg1_repeat1": answers}, benchmark)
        named = [figure.get("name") for figure in result.to_json()["pages"][0]["figures"]]
        assert named == ["1", None]  # the second is the baseline test that nobody wrote
        assert result.value("passed", ("test", "present")) == expected


def test_ocean_scores_the_document_sets(tmp_path: Path) -> None:
    benchmark = load(benchmarks.ocean(tmp_path))
    assert benchmark.left_out == {"handwritten_en, which is no document set": 2}
    predictions = {
        "document_en/0a": "The quick brown fox jumps over the dog.",
        "document_zh/0a": "天气。",
    }
    result = score(predictions, benchmark)
    assert result.value("edit", ("set", "document_en")) == 0
    assert result.value("edit", ("set", "document_zh")) == pytest.approx(2 / 5)
    assert result.value("recall", ("set", "document_zh")) == pytest.approx(3 / 5)
    assert result.value("bleu", ("set", "document_en")) == 1


@pytest.mark.parametrize(
    "name",
    ["one.md", "one.png.md", "one.png/page-0001.md", "one_pg1.md"],
)
def test_predictions_as_scorers_and_parse_call_them(tmp_path: Path, name: str) -> None:
    benchmark = omni(tmp_path / "b")
    path = tmp_path / "p" / name
    path.parent.mkdir(parents=True)
    path.write_text(FRUIT_PAGE)
    if name == "one_pg1.md":
        with pytest.raises(SoonerError, match=r"no prediction of any of the 2 pages.*'one\.md'"):
            read_predictions(tmp_path / "p", benchmark)
    else:
        assert read_predictions(tmp_path / "p", benchmark) == {"one": [FRUIT_PAGE], "two": []}


def test_predictions_of_pdf_pages_and_repeats(tmp_path: Path) -> None:
    benchmark = load(benchmarks.olmocr(tmp_path / "b"))
    files = {
        "a/x_pg1_repeat1.md": "1", "a/x_pg1_repeat2.md": "2", "b.pdf/page-0002.md": "3",
        "b.pdf.md": "whole",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    predictions = read_predictions(tmp_path, benchmark)
    assert predictions["a/x_pg1_repeat1"] == ["1", "2"]
    assert predictions["b_pg2_repeat1"] == ["3"]
    assert predictions["b_pg1_repeat1"] == []  # the whole document's text is no page's


def test_names_without_folders_count_only_if_they_are_unique(tmp_path: Path) -> None:
    (tmp_path / "0a.md").write_text("which of both?")
    with pytest.raises(SoonerError, match="no prediction of any of the 2 pages"):
        read_predictions(tmp_path, load(benchmarks.ocean(tmp_path / "b")))
    (tmp_path / "x_pg1_repeat1.md").write_text("this one")
    predictions = read_predictions(tmp_path, load(benchmarks.olmocr(tmp_path / "o")))
    assert predictions["a/x_pg1_repeat1"] == ["this one"]


@pytest.mark.parametrize("make", [benchmarks.omnidocbench, benchmarks.olmocr, benchmarks.ocean])
def test_predictions_that_are_written_are_read_again(tmp_path: Path, make: Any) -> None:
    benchmark = load(make(tmp_path / "b"))
    texts = {sample.name: [f"text of {sample.name}"] for sample in benchmark.samples}
    write_predictions(tmp_path / "p", benchmark, texts)
    assert read_predictions(tmp_path / "p", benchmark) == texts
    assert all((tmp_path / "p" / f"{sample.name}.md").is_file() for sample in benchmark.samples)
    if make is benchmarks.ocean:  # lists that its own scorer reads
        (answer,) = json.loads((tmp_path / "p" / "document_en.json").read_text())
        assert (answer["image"], answer["answer"]) == ("0a.png", "text of document_en/0a")


def test_a_limit_is_spread_over_the_pages(tmp_path: Path) -> None:
    pages = [omni_page(f"{n}.png", [block("text_block", 1, text="x")]) for n in range(10)]
    benchmark = omni(tmp_path, *pages)
    assert [sample.name for sample in benchmark.limited(3).samples] == ["0", "3", "6"]
    assert benchmark.limited(99) is benchmark
    with pytest.raises(SoonerError, match="limit is 0"):
        benchmark.limited(0)


def broken(**changes: Any) -> dict[str, Any]:
    page = copy.deepcopy(PAGES[0])
    page.update(changes)
    return page


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ({"page_info": {"image_path": "a.png"}}, "'layout_dets' is missing"),
        (broken(page_info={}), "'image_path' is missing"),
        (broken(layout_dets={}), "'layout_dets' is dict, not list"),
        (broken(layout_dets=[{"text": "x"}]), "block 0: 'category_type' is missing"),
    ],
)
def test_pages_of_another_layout_are_refused_in_a_line(
    tmp_path: Path, page: dict, message: str
) -> None:
    (tmp_path / "OmniDocBench.json").write_text(json.dumps([PAGES[0], page]))
    with pytest.raises(SoonerError, match=message) as error:
        load(tmp_path)
    assert "page 2" in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_folders_are_refused_in_a_line(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SoonerError, match="holds no known benchmark"):
        load(empty)
    with pytest.raises(SoonerError, match="does not exist"):
        load(tmp_path / "nowhere")
    with pytest.raises(
        SoonerError, match=r"unknown benchmark 'olmocr'.*did you mean 'olmocr-bench'"
    ):
        load(empty, "olmocr")
    both = benchmarks.olmocr(benchmarks.omnidocbench(tmp_path / "both"))
    with pytest.raises(SoonerError, match="omnidocbench or olmocr-bench; say which"):
        load(both)
    assert load(both, "olmocr-bench").kind == "olmocr-bench"
    for kind in ("omnidocbench", "olmocr-bench", "ocean-ocr-bench"):
        with pytest.raises(SoonerError, match="has no "):
            load(empty, kind)
    (empty / "OmniDocBench.json").write_text('[{"cut')
    with pytest.raises(SoonerError, match="is no JSON"):
        load(empty)
    (empty / "OmniDocBench.json").write_text("[]")
    with pytest.raises(SoonerError, match="no list of pages"):
        load(empty)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 1: no JSON"),
        ("[]", r"line 1: list instead of an object"),
        ('{"pdf": "x.pdf", "page": 1}', "'type' is missing"),
        ('{"pdf": "x.pdf", "page": "1", "type": "math"}', "'page' is str, not int"),
        ('{"pdf": "x.pdf", "page": 1, "type": "present", "text": " "}', "'text' is empty"),
        ('{"pdf": "x.pdf", "page": 1, "type": "order", "before": "a"}', "'after' is missing"),
        ('{"pdf": "../x.pdf", "page": 1, "type": "math"}', "not within its pdfs/"),
        (
            '{"pdf": "x.pdf", "page": 1, "type": "present", "text": "a", "max_diffs": -1}',
            "max_diffs is -1",
        ),
    ],
)
def test_wrong_unit_tests_are_refused_in_a_line(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(f"{line}\n")
    with pytest.raises(SoonerError, match=message) as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


def test_missing_pictures_are_refused_before_parsing_only(tmp_path: Path) -> None:
    benchmark = omni(tmp_path)
    with pytest.raises(SoonerError, match=r"2 of 2 pages .*images/one\.png.*--predictions"):
        benchmark.check_sources()


def test_an_interval_holds_the_mean_and_shrinks_with_pages() -> None:
    generator = np.random.default_rng(5)
    widths = []
    for pages in (20, 2000):
        values = generator.random((pages, 1))
        low, high = interval(values, np.ones_like(values), generator)
        assert low < values.mean() < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 5
