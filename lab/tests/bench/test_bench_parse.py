"""`sooner bench parse` on a tiny random model, with a drafter that knows its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sooner_lab.bench.parse.arms as bench_arms
from sooner.cli.main import main
from sooner.documents import Page, PageDraft, Region
from sooner.engine.stats.run import Stats
from sooner.parity import Parity
from sooner.tasks.parse import PageParser, ParseSettings
from sooner_lab.bench import report
from sooner_lab.bench.parse import run, sheets
from sooner_lab.bench.parse.arms import PageRun, ParseModels, recorded
from sooner_lab.bench.parse.figures import arm_row
from sooner_lab.bench.parse.settings import ParseBenchSettings
from sooner_lab.bench.parse.sheets import kinds_of, sample_sheets
from sooner_lab.bench.run import Arm, ArmSamples
from sooner_lab.worlds.document import blocks, render, world
from sooner_lab.worlds.document.page import DrawnPage
from tasks import parsing

SETTINGS = ParseBenchSettings(
    prompt="w8 w9 w10", pages=2,
    max_new_tokens=12, arms=("plain", "hf", "prompt-lookup", "hsd-page", "hsd", "hsd-relaxed"),
)  # fmt: skip


class Prophet:
    """Drafts what the model will write, in two regions; it takes two seconds by its own account."""

    name = "prophet"

    def __init__(self) -> None:
        settings = ParseSettings(prompt=SETTINGS.prompt, max_new_tokens=SETTINGS.max_new_tokens)
        self.parser = PageParser(parsing.qwen3_vl(), settings)

    def __call__(self, page: Page) -> PageDraft:
        words = self.parser(page).raw.split()
        texts = (" ".join(words[:7]), " ".join(words[7:]))
        edges = (0, page.height / 2, page.height)
        regions = [
            Region((0, edges[place], page.width, edges[place + 1]), order=place, drafts=[text])
            for place, text in enumerate(texts)
        ]
        return PageDraft(regions, 2.0, self.name, page.size)

    def close(self) -> None:
        """Nothing to end."""


def small(rng: np.random.Generator, *size: int) -> Any:
    """A page of a few visual tokens; full ones are slow in a tiny model of small patches."""
    return world.sample_page(rng, 3, 6)


@pytest.fixture(scope="module")
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_arms, "load_parser", lambda *_: parsing.qwen3_vl())
        patch.setattr(sheets, "world", SimpleNamespace(sample_page=small))
        patch.setattr(run, "check_ocr", lambda: None)
        patch.setattr(run, "make_ocr", lambda threads: Prophet())
        yield


@pytest.fixture(scope="module")
def result(tiny: None) -> dict[str, Any]:
    written: list[dict[str, Any]] = []
    made = run.run(SETTINGS, lambda _: None, lambda so_far: written.append(dict(so_far)))
    assert written[-1]["goals"] == made["goals"]
    return json.loads(json.dumps(made))  # as it is read again


def named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["method"] == name)


def test_exact_arms_match_plain_decoding(result: dict[str, Any]) -> None:
    for name in ("plain", "hf", "prompt-lookup", "hsd-page", "hsd"):
        row = named(result["arms"], name)
        assert row["mode"] == "exact"
        assert row["parity"] == "identical"
        assert row["identical"] == row["compared"] == SETTINGS.pages
    assert named(result["arms"], "hsd-relaxed")["mode"] == "relaxed"


def test_the_page_has_every_table(result: dict[str, Any], tmp_path: Path) -> None:
    text = report.markdown(result, "parse.json")
    for title in ("## Goals", "## Arms", "table 1", "table 8"):
        assert title in text
    tables = {table.title: table for table in report.tables(result)}
    assert all(len(row) == len(table.heads) for table in tables.values() for row in table.rows)
    at = tables["Arms"].heads.index("decode without drafting")
    assert tables["Arms"].heads[at + 1 : at + 3] == ["decode (eq. 12)", "e2e (eq. 13)"]
    assert "gave plain decoding's ids:" in tables["Arms"].remark
    path = tmp_path / "parse.json"
    path.write_text(json.dumps(result))
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(path)])
    assert not ended.value.code
    assert path.with_suffix(".md").read_text() == text


def test_recording_has_every_run_and_removes_its_hooks() -> None:
    pair = parsing.qwen3_vl()
    model = pair.target.model
    parser = PageParser(pair, ParseSettings(prompt="w8 w9", max_new_tokens=5, stages="page"))
    with recorded(model) as calls:
        parsed = parser(parsing.noise_page())
    assert "generate" not in vars(model)
    ((tokens, stats),) = calls
    assert stats.tokens == len(tokens[0]) + (parsed.truncated is None)
    assert pair.target.tokenizer.decode(tokens[0], skip_special_tokens=True) == parsed.raw


def test_another_output_of_an_exact_arm_is_a_bug(tiny: None) -> None:
    models = ParseModels(SETTINGS)
    (sheet,) = sample_sheets(1, 1)
    plain = models.reader("plain")(sheet, None)
    first, *rest = plain.tokens[0]
    other = PageRun([[(first + 1) % 40, *rest]], 1.0, 1.0, 1)
    assert models.parity(sheet, plain, other).verdict == "bug"
    assert models.parity(sheet, plain, plain).verdict == "identical"


# Pages and PDFs.


@pytest.fixture(scope="module")
def full_sheets() -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sheets, "world", world)  # not the small pages of `tiny`
        return sample_sheets(3, 11)


def test_more_pages_begin_with_the_same_pages(
    full_sheets: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sheets, "world", world)
    fewer = sample_sheets(2, 11)
    assert [sheet.truth for sheet in fewer] == [sheet.truth for sheet in full_sheets[:2]]
    assert (fewer[1].page.picture == full_sheets[1].page.picture).all()
    clean = render.rgb(render.draw(fewer[0].made)).astype(int)
    assert np.abs(fewer[0].page.picture - clean).mean() < 40


def test_pages_are_classified_by_their_contents() -> None:
    rng = np.random.default_rng(3)
    whole, left, right = (0, 6, 1, 30), (0, 6, 1, 14), (0, 6, 17, 14)
    prose = DrawnPage(20, 16, (blocks.paragraph(rng, whole),))
    columns = DrawnPage(20, 16, (blocks.paragraph(rng, left), blocks.table(rng, right)))
    assert kinds_of(prose) == ("one column", "prose alone")
    assert kinds_of(columns) == ("two columns", "table")


# Figures.


def page_run(seconds: float, tokens: int = 100, **more: Any) -> PageRun:
    stats = Stats(decode_tokens=tokens)
    stats.acceptance_histogram.update({6: 10})
    stats.num_draft_levels = 80
    stats.seconds["draft_prefill"] = 0.5
    ids = [list(range(tokens))]
    known: dict[str, Any] = {"forwards": 10, "regions": (), **more}
    return PageRun(ids, seconds, seconds + 1, tokens, stats, **known)


def plain_run(seconds: float, tokens: int = 100, **more: Any) -> PageRun:
    return PageRun([list(range(tokens))], seconds, seconds + 1, tokens, forwards=10, **more)


def rows_of(
    *pairs: tuple[PageRun, PageRun], mode: str = "exact", verdict: Any = "identical"
) -> list[dict[str, Any]]:
    """Rows of plain decoding and of an arm whose drafter takes a second a page."""
    made: list[Any] = [
        SimpleNamespace(number=number, kinds=("table",)) for number in range(1, len(pairs) + 1)
    ]

    def arm(name: str, side: int, mode: str, verdict: Any) -> ArmSamples:
        samples: Any = [[pair[side]] for pair in pairs]
        return ArmSamples(Arm(name, lambda index: pairs[index][side], mode), samples, [verdict])

    plain = arm("plain", 0, "exact", Parity("identical"))
    other = arm("hsd", 1, mode, Parity(verdict))
    return [arm_row(each, plain, made, [1.0] * len(pairs), 1) for each in (plain, other)]


def test_speeds_are_ratios_of_totals() -> None:
    base, fast = rows_of((plain_run(4.0), page_run(1.0)), (plain_run(8.0), page_run(2.0)))
    assert base["decode_speedup"] == 1
    assert fast["decode_speedup"] == pytest.approx(4)
    assert fast["decode_speedup_interval"] == pytest.approx([4, 4])
    assert fast["drafted_speedup"] == pytest.approx(12 / (3 + 2 * 1.5))  # OCR and stage 1
    assert fast["e2e_speedup"] == pytest.approx(14 / (5 + 2 * 1.0))  # OCR in front of each page
    assert fast["draft_seconds_a_page"] == pytest.approx(1.5)
    assert fast["aal"] == pytest.approx(6)
    assert fast["path_rate"] == pytest.approx(0.75)  # of the deepest path of each tree
    assert fast["tokens_a_forward"] == pytest.approx(10)
    table = named([{**row, "method": row["kind"]} for row in fast["by_kind"]], "table")
    assert table["pages"] == 2
    assert table["e2e_speedup"] == fast["e2e_speedup"]


def test_pages_without_an_end_are_named_and_count_for_nothing() -> None:
    good = (plain_run(4.0), page_run(2.0))
    for bad in (
        (plain_run(900.0, truncated="repetition"), page_run(1.0)),
        (plain_run(900.0), page_run(1.0, truncated="length")),
    ):
        row = rows_of(good, bad)[1]
        assert (row["truncated"], row["pages"]) == ([2], 1)
        assert row["decode_speedup"] == pytest.approx(2)


def test_an_exact_arm_that_differs_has_no_speed() -> None:
    row = rows_of((plain_run(4.0), page_run(1.0)), verdict="bug")[1]
    assert row["parity"] == "bug"
    assert all("decode_speedup" not in part for part in (row, *row["by_kind"]))


def test_a_text_that_ends_early_is_no_faster_for_it() -> None:
    row = rows_of((plain_run(4.0), page_run(2.0, tokens=50)), mode="relaxed")[1]
    assert row["decode_speedup"] == pytest.approx(1)
    assert row["parity"] is None
