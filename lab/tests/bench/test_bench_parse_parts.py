"""What `sooner bench parse` is made of: pages, PDFs, figures, scores, goals."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sooner.documents import Page, Resolution, Style, read_pages, to_markdown
from sooner.documents.drafters import TextLayer
from sooner.errors import SoonerError
from sooner_lab.bench.parse import document, run
from sooner_lab.bench.parse.figures import arm_rows, ratio
from sooner_lab.bench.parse.goals import goals
from sooner_lab.bench.parse.pdf import DPI, write_pdf
from sooner_lab.bench.parse.scores import accuracy
from sooner_lab.bench.parse.settings import ParseBenchSettings
from sooner_lab.bench.parse.sheets import kinds_of, oracle, sample_sheets
from sooner_lab.worlds.document import blocks
from sooner_lab.worlds.document.page import DrawnPage as Made

RNG = 3


@pytest.fixture(scope="module")
def sheets() -> list[Any]:
    return sample_sheets(6, "arms", 11)


def test_more_pages_begin_with_the_same_pages_and_parts_differ(sheets: list[Any]) -> None:
    fewer, exact_sheets = sample_sheets(2, "arms", 11), sample_sheets(2, "exactness", 11)
    assert [sheet.truth for sheet in fewer] == [sheet.truth for sheet in sheets[:2]]
    assert (fewer[1].page.picture == sheets[1].page.picture).all()
    assert exact_sheets[0].truth != fewer[0].truth


def test_pages_are_classified_by_their_contents() -> None:
    rng = np.random.default_rng(RNG)
    whole, left, right = (0, 6, 1, 30), (0, 6, 1, 14), (0, 6, 17, 14)
    prose = Made(20, 16, (blocks.paragraph(rng, whole),))
    columns = Made(20, 16, (blocks.paragraph(rng, left), blocks.table(rng, right)))
    assert kinds_of(prose) == ("one column", "prose alone")
    assert kinds_of(columns) == ("two columns", "table")


def test_the_draft_without_a_fault_is_the_truth(sheets: list[Any]) -> None:
    for sheet in sheets:
        text = to_markdown(oracle(sheet).regions, Style(formulas="spaced"))
        assert text.strip() == sheet.truth


def test_a_scan_comes_out_of_its_pdf_pixel_by_pixel(tmp_path: Path, sheets: list[Any]) -> None:
    path = write_pdf(tmp_path / "scan.pdf", sheets[:3], text_layer=False)
    pages = list(read_pages(path, None, Resolution(DPI)))
    assert len(pages) == 3
    for page, sheet in zip(pages, sheets, strict=False):
        assert isinstance(page, Page)
        assert (page.picture == sheet.page.picture).all()
        assert page.text is None or not page.text.lines


def test_a_text_layer_reads_the_page(tmp_path: Path, sheets: list[Any]) -> None:
    path = write_pdf(tmp_path / "text.pdf", sheets[:3], text_layer=True)
    for page, sheet in zip(read_pages(path, None, Resolution(DPI)), sheets, strict=False):
        assert isinstance(page, Page)
        assert page.text is not None
        assert page.text.good, page.text.problem
        assert (page.picture == sheet.page.picture).all()  # the words can't be seen
        text = to_markdown(TextLayer()(page).regions, Style(formulas="spaced"))
        there = set(sheet.truth.split())
        assert len(there & set(text.split())) > 0.9 * len(there)


def record(decode: float, tokens: int = 100, **extra: Any) -> dict[str, Any]:
    return {
        "mode": "exact", "tokens": tokens, "truncated": None, "same": True,
        "verdict": "identical", "decode": decode, "drafting": 0.5, "making": 0.7, "drafter": 1.0,
        "e2e": decode + 1, "forwards": 10, "region_forwards": 4, "steps": 10, "accepted": 60,
        "levels": 80, "region_steps": 0, "region_accepted": 0, **extra,
    }  # fmt: skip


def plain(decode: float, **extra: Any) -> dict[str, Any]:
    return record(decode, **{"drafting": 0.0, "drafter": 0.0, "accepted": 0, **extra})


def pages_of(*pairs: tuple[dict[str, Any], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"number": number, "kinds": ["table"], "arms": {"plain": first, "hsd": other}}
        for number, (first, other) in enumerate(pairs, 1)
    ]


def test_speeds_are_ratios_of_totals() -> None:
    base, fast = arm_rows(
        pages_of((plain(4.0), record(1.0)), (plain(8.0), record(2.0))), ["plain", "hsd"], 1
    )
    assert base["decode_speedup"] == 1
    assert fast["decode_speedup"] == pytest.approx(4)
    assert fast["decode_speedup_interval"] == pytest.approx([4, 4])
    assert fast["drafted_speedup"] == pytest.approx(12 / (3 + 2 * 1.5))  # OCR and stage 1
    assert fast["e2e_speedup"] == pytest.approx(14 / (5 + 2 * 1.0))  # OCR in front of each page
    assert fast["draft_seconds_a_page"] == pytest.approx(1.7)
    assert fast["aal"] == pytest.approx(6)
    assert fast["path_rate"] == pytest.approx(0.75)  # of the deepest path of each tree
    assert fast["tokens_a_forward"] == pytest.approx(10)
    assert fast["region_forwards"] == pytest.approx(4)
    table = next(kind_row for kind_row in fast["by_kind"] if kind_row["kind"] == "table")
    assert table["pages"] == 2
    assert table["e2e_speedup"] == fast["e2e_speedup"]


def test_pages_without_an_end_are_named_and_count_for_nothing() -> None:
    good = (plain(4.0), record(2.0))
    for bad in (
        (plain(900.0, truncated="repetition"), record(1.0)),
        (plain(900.0), record(1.0, truncated="length")),
    ):
        row = arm_rows(pages_of(good, bad), ["plain", "hsd"], 1)[1]
        assert row["truncated"] == [2]
        assert row["pages"] == 1
        assert row["decode_speedup"] == pytest.approx(2)


def test_an_exact_arm_that_differs_has_no_speed() -> None:
    row = arm_rows(
        pages_of((plain(4.0), record(1.0, same=False, verdict="bug"))), ["plain", "hsd"], 1
    )[1]
    assert row["parity"] == "bug"
    assert "decode_speedup" not in row
    assert all("decode_speedup" not in kind_row for kind_row in row["by_kind"])


def test_a_text_that_ends_early_is_no_faster_for_it() -> None:
    half = record(2.0, tokens=50, mode="relaxed", verdict=None)
    row = arm_rows(pages_of((plain(4.0), half)), ["plain", "hsd"], 1)[1]
    assert row["decode_speedup"] == pytest.approx(1)
    assert row["parity"] is None


def test_an_interval_holds_the_ratio_and_narrows_with_more_pages() -> None:
    rng = np.random.default_rng(RNG)
    arm = rng.uniform(1, 3, 40)
    base = 4 * arm * rng.uniform(0.7, 1.3, 40)
    few, many = ratio(base[:6], arm[:6], 1), ratio(base, arm, 1)
    for interval in (few, many):
        assert interval["interval"][0] < interval["value"] < interval["interval"][1]
    assert many["interval"][1] - many["interval"][0] < few["interval"][1] - few["interval"][0]
    assert ratio([], [], 1)["value"] is None


@pytest.mark.skipif(importlib.util.find_spec("rapidfuzz") is None, reason="needs rapidfuzz")
def test_the_cost_of_a_tolerance_is_in_points_of_words() -> None:
    truth = "one two three four five six seven eight nine ten"
    texts = [
        {"number": 1, "truth": truth, "draft": "", "plain": truth, "hsd": truth,
         "hsd-relaxed": truth.replace("ten", "men")}
    ]  # fmt: skip
    result = accuracy(texts, ParseBenchSettings(), "arms")
    rows = {row["method"]: row for row in result["rows"]}
    assert rows["plain"]["words"] == 1
    assert rows["draft"]["edit_distance"] == 1
    assert "teds" not in rows["plain"]  # the page has no table
    (lost,) = result["words_lost"]
    assert lost["points"] == pytest.approx(10)


def test_goals_are_met_or_not() -> None:
    arms = arm_rows(pages_of((plain(4.0), record(0.5))), ["plain", "hsd"], 1)
    rows = goals(
        {
            "arms": arms,
            "document": [
                {"document": "scan", "method": "hsd", "pages": 20, "speedup": 1.9},
                {"document": "text layer", "method": "hsd", "pages": 20, "speedup": 3.1},
                {"document": "scan", "method": "hsd-page", "pages": 20, "speedup": None},
            ],
        }
    )
    met = {entry["goal"]: entry["met"] for entry in rows}
    assert met["hsd, 1 pages: decoding over plain, drafting left out"] is None
    assert met["hsd, 1 pages: decoding over plain, drafting included (eq. 12)"] is False
    assert met["hsd: pages of 1 identical to plain decoding"] is False  # one page is no evidence
    assert met["scan, 20 pages, file to Markdown, hsd"] is False
    assert met["text layer, 20 pages, file to Markdown, hsd"] is True
    assert not any("hsd-page" in goal for goal in met)


def test_parts_are_added_to_an_earlier_result() -> None:
    before = {
        "bench": "parse", "model": "m", "settings": {"model": None}, "provenance": {"seed": 1},
        "exactness": {"pages": 200}, "accuracy": {"of": "exactness"}, "clients": {"rows": []},
    }  # fmt: skip
    earlier = run._retained(before, ParseBenchSettings(parts=("clients",)))
    assert earlier["exactness"] == {"pages": 200}
    assert "clients" not in earlier
    assert earlier["kept"][0]["parts"] == ["accuracy", "exactness"]
    assert earlier["kept"][0]["provenance"] == {"seed": 1}
    with pytest.raises(SoonerError, match="another file"):
        run._retained(before, ParseBenchSettings(model="other"))


def test_an_aal_of_documents_counts_steps_and_not_pages() -> None:
    records = [{"aal": 20.0, "steps": 6}, {"aal": 2.0, "steps": 41}, {"aal": None, "steps": 9}]
    assert document._aal(records) == pytest.approx((20 * 5 + 2 * 40) / 45)
    assert document._aal([]) is None


def test_a_tie_is_no_identical_page() -> None:
    row = {"method": "hsd", "mode": "exact", "pages": 200, "identical": 199, "ties": [7]}
    (goal,) = goals({"exactness": {"rows": [row]}})
    assert (goal["reached"], goal["met"]) == (199, False)
    assert goal["key"] == "exactness.rows[hsd].identical"


def value_at_key(result: dict[str, Any], key: str) -> Any:
    """What stands in the result at a key such as `arms[hsd].aal`."""
    at: Any = result
    for part in key.split("."):
        name, _, row = part.partition("[")
        at = at[name]
        if row:
            at = next(entry for entry in at if row[:-1] in names_of(entry))
    return at


def names_of(row: dict[str, Any]) -> list[str]:
    if "clients" in row:
        return [f"{row['clients']}/{row['method']}"]
    whole = f"{row.get('document')}/{row.get('method')}"
    return [whole] if "document" in row else [row.get("method") or row.get("arm") or ""]


def test_every_goal_rests_on_its_key() -> None:
    """The committed result has every part."""
    result = json.loads((Path(__file__).parents[3] / "docs/results/parse.json").read_text())
    made = goals(result)
    assert len(made) > 20
    for goal in made:
        assert value_at_key(result, goal["key"]) == goal["reached"], goal
