"""`sooner bench papers`: all tables are there, unlike things are not compared, the page is true."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import exit_code as run
from sooner.errors import SoonerError
from sooner_lab.bench.papers import paper_rows as holding
from sooner_lab.bench.papers.paper_rows import compare_papers, figure, hold, order, summary
from sooner_lab.bench.papers.quantities import DIRTY, NO_FIGURE, NOT_YET, QUANTITIES
from sooner_lab.bench.papers.results import Results, _canvas, _rates
from sooner_lab.bench.papers.tables import (
    NOTHING,
    Comparison,
    Key,
    Paper,
    PaperColumn,
    PaperItem,
    PaperRow,
    papers,
)
from sooner_lab.bench.report import markdown

RESULTS = Path(__file__).parents[3] / "docs" / "results"
COUNTED = {
    "parallelvlm": (7, 11),
    "hsd": (10, 8),  # tables 1 to 8, A1 and A2; figures 1 to 3 and A1 to A5
    "mminference": (4, 18),
    "spec-vla": (6, 5),
    "scd": (6, 10),
}
"""Tables and figures of each paper, appendices included."""

Figures = dict[str, Any]


@pytest.fixture(scope="module")
def committed() -> list[Figures]:
    return compare_papers(Results(RESULTS))


def rounded(figures: Any) -> Any:
    """Figures to nine digits, which other machines' sums agree in."""
    if isinstance(figures, float):
        return float(f"{figures:.9g}")
    if isinstance(figures, dict):
        return {key: rounded(value) for key, value in figures.items()}
    return [rounded(item) for item in figures] if isinstance(figures, list) else figures


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.slug)
def test_every_table_and_figure_is_there_once(paper: Paper) -> None:
    for kind, expected in zip(("table", "figure"), COUNTED[paper.slug], strict=True):
        names = [item.name.split()[1] for item in paper.items if item.name.split()[0] == kind]
        assert len(names) == len(set(names)) == expected
        main_text = [int(name) for name in names if name.isdigit()]
        appendix = [int(name[1:]) for name in names if not name.isdigit()]
        for numbers in (main_text, appendix):
            assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.slug)
def test_every_row_has_figures_of_known_quantities(paper: Paper) -> None:
    for item in paper.items:
        assert bool(item.rows) == (item.nothing is None)
        assert item.nothing is None or item.nothing in NOTHING
        assert set(item.visible) <= set(item.names)
        assert {column.quantity for column in item.columns} <= set(QUANTITIES)
        places = [(row.group, row.name) for row in item.rows]
        assert len(places) == len(set(places))


def test_every_link_leads_to_a_committed_clean_figure(committed: list[Figures]) -> None:
    reasons = [
        (comparison["item"], row["row"], row["reason"])
        for paper in committed
        for comparison in paper["comparisons"]
        for row in comparison["rows"]
        if row["reason"]
    ]
    assert reasons == []
    assert summary(committed)["tables"] == sum(tables for tables, _ in COUNTED.values())
    for paper in committed:
        assert all(bool(row["ours"]) != bool(row["reason"]) for row in paper["rows"])


def test_the_committed_page_is_what_the_committed_results_make(committed: list[Figures]) -> None:
    message = (
        "run `sooner bench papers --json docs/results/papers.json`, then `sooner bench report`"
    )
    result = json.loads((RESULTS / "papers.json").read_text())
    assert rounded(result["papers"]) == rounded(json.loads(json.dumps(committed))), message
    assert result["summary"] == json.loads(json.dumps(summary(committed))), message
    assert markdown(result, "papers.json") == (RESULTS / "papers.md").read_text(), message
    assert result["provenance"]["git_dirty"] is False


ITEM = PaperItem(
    "table 1",
    "made up",
    (PaperColumn("speed", "decode"), PaperColumn("time", "seconds"), PaperColumn("M", "round")),
    (
        PaperRow("", "slow", {"speed": 1.0, "time": 9.0, "M": 1.0}),
        PaperRow("", "fast", {"speed": 2.0, "time": 4.0, "M": 3.0}),
    ),
    ("speed",),
    other={"fast": {"round": "run"}},
)
PAPER = Paper("Made up", "made-up", (ITEM,))
SPEED = Comparison(
    "table 1", "", "speed", "decode", "one", "trained", "{clips} clips",
    {"slow": Key("arms[method=a].x"), "fast": Key("arms[method=b].x", plus=1, times=2)},
    why="because",
    samples="arms[0].clips",
    intervals={"slow": "arms[method=a].span", "fast": "arms[method=b].span"},
)  # fmt: skip


def written(folder: Path, dirty: bool = False, **more: Any) -> Results:
    arms = [{"method": "a", "x": 1.5, "clips": 9}, {"method": "b", "x": 2.5}]
    result = {"bench": "one", "clips": 3, "arms": arms, "provenance": origin(dirty), **more}
    (folder / "one.json").write_text(json.dumps(result))
    return Results(folder)


def origin(dirty: bool) -> Figures:
    return {"git": "abc", "git_dirty": dirty, "date": "2026-11-24"}


def compared(link: Comparison, results: Results) -> Figures:
    return hold(replace(PAPER, comparisons=(link,)), results)["comparisons"][0]


def test_figures_of_the_same_quantity_are_compared(tmp_path: Path) -> None:
    compared_paper = hold(replace(PAPER, comparisons=(SPEED,)), written(tmp_path))
    entry = compared_paper["comparisons"][0]
    assert [row["ours"] for row in entry["rows"]] == [1.5, 7.0]
    assert (entry["verdict"], entry["in_order"], entry["why"], entry["how"]) == (
        "holds",
        1,
        "",
        "3 clips",
    )
    assert [row["status"] for row in compared_paper["rows"]] == ["beside", "beside"]
    ours = [entry for row in compared_paper["rows"] for entry in row["ours"]]
    assert [(entry["rank"], entry["of"]) for entry in ours] == [
        (1, 2), (2, 2),
    ]  # fmt: skip


def test_seconds_of_another_machine_are_compared_in_their_order_alone(tmp_path: Path) -> None:
    link = replace(SPEED, column="time", quantity="seconds")
    comparison = compared(link, written(tmp_path))
    assert comparison["only_order"] == holding.OTHER_SCALE
    assert (comparison["verdict"], comparison["against"], comparison["why"]) == (
        "fails",
        [["fast", "slow"]],
        "because",
    )
    assert compared(replace(link, regime="analytic"), written(tmp_path))["only_order"] == ""


def test_unlike_things_are_refused(tmp_path: Path) -> None:
    results = written(tmp_path)
    with pytest.raises(SoonerError, match=r"'slow' counts decoding speed.*unlike things are not"):
        compared(replace(SPEED, quantity="e2e"), results)
    with pytest.raises(SoonerError, match="'fast' counts draft tokens between two rejections"):
        compared(replace(SPEED, column="M", quantity="round"), results)
    with pytest.raises(SoonerError, match="has no column 'speeds'"):
        compared(replace(SPEED, column="speeds"), results)
    with pytest.raises(SoonerError, match="has no row 'slower'"):
        compared(replace(SPEED, arms={"slower": Key("clips")}), results)
    with pytest.raises(SoonerError, match="'dreamt' is no regime"):
        compared(replace(SPEED, regime="dreamt"), results)


def test_a_row_needs_a_figure_or_a_reason(tmp_path: Path) -> None:
    link = replace(SPEED, arms={"slow": Key("arms[method=a].x")})
    with pytest.raises(SoonerError, match="table 1 / fast has neither a figure nor a reason"):
        hold(replace(PAPER, comparisons=(link,)), written(tmp_path))


def test_a_key_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    arms = [{"method": "a", "x": 1.5, "clips": 9}, {"method": "b", "x": None}]
    compared_paper = hold(replace(PAPER, comparisons=(SPEED,)), written(tmp_path, arms=arms))
    assert compared_paper["comparisons"][0]["verdict"] == "no pair"
    reason = {"kind": NO_FIGURE, "told": "arms[method=b].x of one.json"}
    assert [row["reason"] for row in compared_paper["rows"]] == [None, reason]
    value, why = figure(Results(tmp_path), "two", Key("arms[method=a].x"))
    assert value is None
    assert why is not None
    assert (why.kind, why.report) == (NOT_YET, "two.json is not there")


def test_a_dirty_result_is_refused(tmp_path: Path) -> None:
    compared_paper = hold(replace(PAPER, comparisons=(SPEED,)), written(tmp_path, dirty=True))
    assert [row["reason"]["kind"] for row in compared_paper["rows"]] == [DIRTY, DIRTY]
    assert all(row["ours"] == [] for row in compared_paper["rows"])


@pytest.mark.parametrize("earlier_is_dirty", [False, True])
def test_parts_of_an_earlier_run_have_its_cleanliness(
    tmp_path: Path, earlier_is_dirty: bool
) -> None:
    earlier = [{"parts": ["arms"], "provenance": origin(earlier_is_dirty)}]
    results = written(tmp_path, dirty=not earlier_is_dirty, kept=earlier)
    assert (figure(results, "one", Key("arms[0].x"))[0] is None) == earlier_is_dirty
    assert (figure(results, "one", Key("clips"))[0] is None) == (not earlier_is_dirty)


def test_an_order_counts_pairs_and_a_tie_of_ours_is_none() -> None:
    result = order([("a", 1.0, 5.0), ("b", 2.0, 5.0), ("c", 2.0, 9.0), ("d", None, 1.0)])
    assert (result["pairs"], result["in_order"], result["verdict"]) == (2, 1, "fails")
    assert result["against"] == [["a", "b"]]
    assert order([("a", 3.0, 2.0), ("b", 1.0, 1.0)])["verdict"] == "holds"
    assert order([("a", 3.0, 2.0)])["verdict"] == "no pair"


def test_a_pair_whose_intervals_overlap_is_open(tmp_path: Path) -> None:
    rows = [("a", 1.0, 5.0), ("b", 2.0, 4.0), ("c", 3.0, 9.0)]
    result = order(rows, {"a": [3.0, 6.0], "b": [2.0, 5.0], "c": [8.0, 9.5]})
    assert (result["pairs"], result["in_order"], result["verdict"]) == (2, 2, "open")
    assert (result["open"], result["against"]) == ([["a", "b"]], [])
    assert order(rows, {"a": [4.5, 6.0], "b": [2.0, 4.4]})["verdict"] == "fails"
    assert order(rows[:2], {"a": [3.0, 6.0], "b": None})["verdict"] == "fails"
    arms = [
        {"method": "a", "x": 1.5, "span": [1.0, 2.1], "clips": 9},
        {"method": "b", "x": 2.5, "span": [2.0, 3.0]},
    ]
    assert compared(SPEED, written(tmp_path, arms=arms))["open"] == [["slow", "fast"]]


def test_an_order_of_few_samples_is_withdrawn(tmp_path: Path) -> None:
    results = written(tmp_path)
    few = replace(SPEED, samples=holding.MIN_SAMPLES - 1)
    entry = compared(few, results)
    assert (entry["verdict"], entry["pairs"], entry["against"]) == ("withdrawn", 0, [])
    assert summary([hold(replace(PAPER, comparisons=(few,)), results)])["status"] == {"beside": 2}
    order_alone = replace(few, only_order="another scale")
    rows = hold(replace(PAPER, comparisons=(order_alone,)), results)["rows"]
    assert [row["reason"]["kind"] for row in rows] == [holding.TOO_SMALL] * 2
    assert compared(replace(SPEED, samples=holding.MIN_SAMPLES), results)["verdict"] == "holds"
    with pytest.raises(SoonerError, match="how many inputs is it of"):
        compared(replace(SPEED, samples=0), results)


def test_every_reason_belongs_to_a_row() -> None:
    for paper in papers():
        items = {item.name: item for item in paper.items}
        for place in paper.reasons:
            name, *rest = place.split(" / ")
            groups = {row.group for row in items[name].rows}
            assert items[name].rows, place
            assert not rest or rest[0] in groups, place
            assert len(rest) < 2 or items[name].row(*rest), place


def test_the_command_writes_its_json_and_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out" / "papers.json"
    assert run("bench", "papers", "--results", str(tmp_path), "--json", str(out)) == 0
    capsys.readouterr()
    result = json.loads(out.read_text())
    assert result["results"] == {}
    statuses = result["summary"]["status"]  # without any result, theory alone has figures
    assert statuses["none"] + statuses["beside"] == result["summary"]["rows"]
    assert run("bench", "papers", "--results", str(tmp_path / "no")) == 2
    assert "is no folder; give --results" in capsys.readouterr().err
    (tmp_path / "act.json").write_text("{}")
    assert run("bench", "papers", "--results", str(tmp_path)) == 2
    assert "is no result of `sooner bench`" in capsys.readouterr().err


def test_rates_are_of_the_pages_that_both_arms_read() -> None:
    rows = [page_row("hsd", "a", 30, 10, 2.0), page_row("hsd", "b", 10, 10, 2.0)]
    rows += [page_row("plain", page, 0, 99, cpu) for page, cpu in (("b", 12.0), ("a", 6.0))]
    rows.append(page_row("plain", "c", 0, 99, 99.0))
    hsd, plain = _rates(rows, "cpu_")
    assert (hsd["method"], hsd["aal"], plain["decode"]) == ("hsd", 2.0, 1.0)
    assert hsd["decode"] == pytest.approx(4.5)
    (drafted, _) = _rates(rows, "cpu_", has_drafter=True)
    assert drafted["decode"] == pytest.approx(3.0)


def test_forwards_are_held_against_plain_decoding_of_the_same_drawings() -> None:
    readings = [
        {"part": "counts", "kind": "clip", "arm": arm, "start": None, "window": window,
         "forwards": forwards}
        for arm, window, forwards in (("sjd", 4, [4, 6]), ("plain", None, [10, 10]))
    ]  # fmt: skip
    plain, sjd = _canvas({"readings": [*readings, {"part": "oracle", "arm": "sjd"}]})["counts"]
    assert (plain["arm"], plain["fewer"], plain["interval"]) == ("plain", 1.0, [1.0, 1.0])
    assert (sjd["mean"], sjd["fewer"], sjd["drawings"]) == (5.0, 2.0, 2)
    assert sjd["interval"][0] < 2.0 < sjd["interval"][1]


def page_row(method: str, page: str, accepted: int, steps: int, seconds: float) -> Figures:
    return {
        "method": method, "page": page, "accepted": accepted, "steps": steps, "tokens": 100,
        "cpu_decode": seconds, "cpu_e2e": seconds, "draft_seconds": float(method == "hsd"),
    }  # fmt: skip
