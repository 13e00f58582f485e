"""`sooner bench parse` on a tiny random model, with a drafter that knows its answers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sooner_lab.bench.parse.arms as bench_arms
from sooner.cli.main import main
from sooner.documents import Page, PageDraft, Region
from sooner.tasks.parse import PageParser, ParseSettings
from sooner_lab.bench import report
from sooner_lab.bench.parse import document, exactness, run, sheets
from sooner_lab.bench.parse.arms import ParseContender, Spoken, Stable
from sooner_lab.bench.parse.listening import listening
from sooner_lab.bench.parse.settings import ParseBenchSettings
from sooner_lab.bench.parse.speed import Course
from sooner_lab.worlds.document import render, world
from tasks import parsing

SETTINGS = ParseBenchSettings(
    prompt="w8 w9 w10", pages=2, document_pages=2, exact_pages=3, batch=2,
    clients=(1, 3), client_pages=3,
    max_new_tokens=12, arms=("plain", "hf", "prompt-lookup", "hsd-page", "hsd", "hsd-relaxed"),
)  # fmt: skip


class Prophet:
    """Drafts what the model will say, in two regions; it takes two seconds by its own account."""

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


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_arms, "load_parser", lambda *_: parsing.qwen3_vl())
        patch.setattr(sheets, "world", SimpleNamespace(sample_page=small))
        patch.setattr(run, "check_ocr", lambda: None)
        patch.setattr(run, "make_ocr", lambda threads: Prophet())
        patch.setattr(exactness, "guard", lambda *_: Prophet())
        patch.setattr(document, "KINDS", {"text layer": "text-layer"})
        yield


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    written: list[dict[str, Any]] = []
    made = run.run(SETTINGS, lambda _: None, lambda so_far: written.append(dict(so_far)))
    assert "document" not in written[0]  # what is measured is kept at once
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


def test_pages_that_are_cut_count_for_no_speed(result: dict[str, Any]) -> None:
    row = named(result["arms"], "hsd-page")
    cut = [page["number"] for page in result["pages"] if page["arms"]["plain"]["truncated"]]
    assert row["truncated"] == cut
    assert row["pages"] == SETTINGS.pages - len(cut)
    assert ("decode_speedup" in row) == (row["pages"] > 0)


def test_drafts_that_are_right_are_accepted_and_timed(result: dict[str, Any]) -> None:
    for page in result["pages"]:
        drafted, plain = page["arms"]["hsd-page"], page["arms"]["plain"]
        assert drafted["accepted"] > 0
        assert drafted["forwards"] < plain["forwards"]
        assert drafted["drafter"] == 2.0
        assert plain["drafter"] == 0.0
        assert 0 < drafted["making"] < drafted["e2e"]
        both = page["arms"]["hsd"]
        assert both["region_steps"] > 0
        assert 0 < both["drafting"] < both["making"] < both["e2e"]


def test_test_pages_are_compared_individually(result: dict[str, Any]) -> None:
    exactness = result["exactness"]
    assert exactness["pages"] == 3
    for name in ("hsd-page", "hsd"):
        assert named(exactness["rows"], name)["identical"] == 3
        assert named(exactness["rows"], name)["bugs"] == []
    assert result["accuracy"]["of"] == "exactness"
    assert result["accuracy"]["pages"] == 3


def test_a_document_goes_from_file_to_files_the_same_way(result: dict[str, Any]) -> None:
    rows = result["document"]
    assert [row["method"] for row in rows] == ["hsd-page", "hsd", "hsd-auto"]
    for row in rows:
        assert row["identical"] == row["counted"]
        assert len(row["left_out"]) == row["pages"] - row["counted"]
        assert row["drafter"] == "text-layer"


def test_concurrent_pages_match_single_pages(result: dict[str, Any]) -> None:
    rows = result["clients"]["rows"]
    assert [row["clients"] for row in rows] == [None] * 4 + [1] * 4 + [3] * 4
    for row in rows:
        assert (row["identical"], row["bugs"], row["verdict"]) == (3, [], "identical")
        assert row["pages_per_second"] > 0
        assert row["cpu_over_plain"] > 0
        assert (row["over_plain"] == 1.0) == (row["method"] == "plain")
    plain, alone = (
        next(row for row in rows if (row["clients"], row["method"]) == (count, "plain"))
        for count in (3, 1)
    )
    assert plain["forwards_a_page"] == alone["forwards_a_page"]
    assert alone["rows_a_round"] == 1
    assert plain["rows_a_round"] > 1.5
    assert plain["rounds"] < alone["rounds"]
    drafted = next(row for row in rows if (row["clients"], row["method"]) == (3, "hsd-page"))
    assert drafted["forwards_a_page"] < plain["forwards_a_page"]
    goals = [goal["key"] for goal in result["goals"] if goal["key"].startswith("clients")]
    assert "clients.rows[3/hsd].over_plain" in goals


def test_the_page_has_every_table(result: dict[str, Any], tmp_path: Path) -> None:
    text = report.markdown(result, "parse.json")
    for title in (
        "## Goals", "## Arms", "table 1", "table 8", "table 7", "end to end", "Exactness",
        "Full batches",
    ):  # fmt: skip
        assert title in text
    for table in report.tables(result):
        assert all(len(row) == len(table.heads) for row in table.rows), table.title
    path = tmp_path / "parse.json"
    path.write_text(json.dumps(result))
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(path)])
    assert not ended.value.code
    assert path.with_suffix(".md").read_text() == text


def test_both_decode_ratios_are_reported(result: dict[str, Any]) -> None:
    tables = {table.title: table for table in report.tables(result)}
    heads = tables["Arms"].heads
    at = heads.index("decode without drafting")
    assert heads[at + 1 : at + 3] == ["decode (eq. 12)", "e2e (eq. 13)"]
    remark = tables["Exactness on held-out pages"].remark
    assert "exact arms that were compared on these pages: `hsd-page`, `hsd`;" in remark
    assert "gave plain decoding's ids:" in tables["Arms"].remark


def test_listening_records_every_run_and_removes_its_hooks() -> None:
    pair = parsing.qwen3_vl()
    model = pair.target.model
    parser = PageParser(pair, ParseSettings(prompt="w8 w9", max_new_tokens=5, stages="page"))
    with listening(model) as runs:
        parsed = parser(parsing.noise_page())
    assert "generate" not in vars(model)
    (call,) = runs
    assert call.stats.tokens == len(call.tokens[0]) + (parsed.truncated is None)
    assert pair.target.tokenizer.decode(call.tokens[0], skip_special_tokens=True) == parsed.raw


def test_arms_take_turns_and_the_first_page_is_thrown_away() -> None:
    order: list[tuple[int, str]] = []

    def arm(name: str, tokens: list[int]) -> ParseContender:
        def parse(sheet: Any, draft: Any) -> Spoken:
            order.append((sheet.number, name))
            return Spoken("", tokens, None, 1.0, 2.0)

        return ParseContender(name, parse)

    pages = sheets.sample_sheets(3, "arms", 1)
    course = Course(Stable(SETTINGS), [arm("plain", [5]), arm("b", [5])], 2, lambda _: None)
    records, texts = course.run(pages, lambda page: PageDraft([]))  # type: ignore[arg-type]
    assert [entry["number"] for entry in records] == [entry["number"] for entry in texts] == [2, 3]
    assert order[:2] == [(1, "plain"), (1, "b")]
    assert order[2:6] == [(2, "b"), (2, "plain"), (2, "plain"), (2, "b")]


def test_an_exact_arm_with_another_output_is_detected() -> None:
    stable = Stable(SETTINGS)
    plain = stable.contender("plain")

    def lie(sheet: Any, draft: Any) -> Spoken:
        spoken = plain.parse(sheet, draft)
        assert spoken.tokens
        return Spoken("", [(spoken.tokens[0] + 1) % 40, *spoken.tokens[1:]], None, 1.0, 1.0)

    course = Course(stable, [plain, ParseContender("liar", lie)], 1, lambda _: None)
    records, _ = course.run(sheets.sample_sheets(2, "arms", 1), lambda page: PageDraft([]))  # type: ignore[arg-type]
    assert records[0]["arms"]["liar"]["verdict"] == "bug"
    assert records[0]["arms"]["plain"]["verdict"] == "identical"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--arms", "hsdd"], "unknown arm 'hsdd' (did you mean 'hsd'?)"),
        (["--parts", "document,exactnes"], "unknown part 'exactnes' (did you mean 'exactness'?)"),
        (["--pages", "0"], "--pages is 0"),
        (["--exact-pages", "-1"], "--exact-pages is -1"),
    ],
)
def test_wrong_options_are_reported_at_once(
    options: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "parse", *options])
    assert ended.value.code == 2
    assert what in capsys.readouterr().err


def test_pictures_of_the_world_are_what_the_model_sees() -> None:
    sheet = sheets.sample_sheets(1, "arms", 5)[0]
    clean = render.rgb(render.draw(sheet.made)).astype(int)
    assert sheet.page.picture.shape == clean.shape
    assert np.abs(sheet.page.picture - clean).mean() < 40
