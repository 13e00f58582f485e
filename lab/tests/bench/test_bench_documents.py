"""`sooner bench documents`: its pages, its target, the arm that follows the paper to the letter."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sooner import miniatures
from sooner.cli.main import main
from sooner.documents import PageDraft, Region
from sooner.documents.regions import overlap
from sooner.errors import SoonerError
from sooner_lab.bench import report
from sooner_lab.bench.documents.drafting import Drafts, merged, off_by, scan
from sooner_lab.bench.documents.judging import aal, gate, speedup
from sooner_lab.bench.documents.prices import Prices
from sooner_lab.bench.documents.reader import measured_epsilon
from sooner_lab.bench.documents.reading import PageReader, RegionNoise, arms
from sooner_lab.bench.documents.scripted import scripted_target
from sooner_lab.bench.documents.settings import DocumentsSettings
from sooner_lab.bench.documents.vocabulary import tokenizer
from sooner_lab.bench.documents.wear import Wear
from sooner_lab.bench.documents.writer import KINDS, write_page

CLEAN = Wear(72, 80, 0.0, 0.0, 0, 0.0)
SKEWED = Wear(72, 80, 0.0, 1.5, 0, 0.0)


@pytest.fixture(scope="module")
def reader() -> PageReader:
    words = tokenizer()
    target = scripted_target(1, 32, len(words), 0)
    return PageReader(target, words, RegionNoise(0.0, 0.0), seed=3)


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_of_full_length_and_come_again(kind: str, reader: PageReader) -> None:
    scanned = scan(kind, 1, CLEAN, 5)
    assert 700 <= len(reader.ids(reader.text(scanned.truth()))) <= 2000
    assert scanned.written == write_page(kind, 1, 5)
    assert scanned.written != write_page(kind, 2, 5)


def test_lines_are_inked_where_their_boxes_are() -> None:
    written = write_page("article", 1, 5)
    ink = 255 - written.draw(72).astype(int)
    for region in written.regions:
        for line in region.lines:
            x0, y0, x1, y1 = (round(side) for side in line.box)
            assert ink[y0 : y1 + 1, x0 : x1 + 1].max() > 100, line.text
    covered = np.zeros_like(ink, bool)
    for region in written.regions:
        x0, y0, x1, y1 = (round(side) for side in region.box)
        covered[y0 - 1 : y1 + 2, x0 - 1 : x1 + 2] = True
    assert ink[~covered].max() == 0


def test_boxes_turn_with_the_page() -> None:
    scanned = scan("book", 2, SKEWED, 5)
    ink = 255 - scanned.picture[:, :, 0].astype(int)
    first = scanned.boxes[0][0]
    x0, y0, x1, y1 = (round(side) for side in first)
    assert ink[y0:y1, x0:x1].sum() > 0.95 * ink[: y1 + 3, :].sum()


def test_a_crop_shows_the_lines_that_are_in_it() -> None:
    scanned = scan("article", 1, CLEAN, 5)
    truth = scanned.truth()
    for region, written in zip(truth.regions, scanned.written.regions, strict=True):
        assert region.bbox is not None
        (shown,) = scanned.shown(region.bbox)
        assert shown.drafts == [written.text]
    paragraph = max(range(len(truth.regions)), key=lambda one: len(scanned.boxes[one]))
    (part,) = scanned.shown(scanned.boxes[paragraph][0])
    assert part.drafts[0] == scanned.written.regions[paragraph].lines[0].text


def test_every_arm_says_the_page_whatever_the_draft_is(reader: PageReader) -> None:
    scanned = scan("notes", 1, CLEAN, 5)
    says = reader.ids(reader.text(scanned.truth()))
    drafts = Drafts(None, 5)
    noisy = PageReader(reader.target, reader.tokenizer, RegionNoise(0.05, 0.5), seed=3)
    for name in ("other", "letters 0.05"):
        for arm in arms(64, 16, 32)[1:5]:
            assert noisy(scanned, drafts(name, scanned), arm).tokens == says, (name, arm.name)


def test_the_letter_of_the_paper_accepts_less(reader: PageReader) -> None:
    scanned = scan("article", 1, CLEAN, 5)
    draft = Drafts(None, 5)("letters 0.01", scanned)
    known = {arm.name: arm for arm in arms(64, 16, 64)}
    read = {name: reader(scanned, draft, known[name]) for name in ("paper-literal", "hsd-page")}
    assert read["paper-literal"].steps > 1.3 * read["hsd-page"].steps
    plain = reader(scanned, draft, known["plain"])
    assert plain.accepted == 0
    assert plain.steps == len(plain.tokens)


def test_crops_without_noise_correct_a_rough_draft(reader: PageReader) -> None:
    scanned = scan("book", 1, CLEAN, 5)
    draft = Drafts(None, 5)("letters 0.03", scanned)
    known = {arm.name: arm for arm in arms(64, 16, 64)}
    both, page = reader(scanned, draft, known["hsd"]), reader(scanned, draft, known["hsd-page"])
    assert both.steps < page.steps / 2
    assert both.stage_text is not None
    assert page.stage_text is None


def test_a_runaway_repeats_itself_and_noise_has_its_rate() -> None:
    ids, rng = list(range(1, 2001)), np.random.default_rng(0)
    said = RegionNoise(0.1, 0.0)(ids, 5000, rng)
    assert 0.07 < np.mean(np.array(said) != np.array(ids)) < 0.13
    assert RegionNoise(0.0, 0.0)(ids, 5000, rng) == ids
    run = RegionNoise(0.0, 1.0)(ids[:50], 5000, rng)
    assert len(run) > 2000
    assert run[-4:] == run[-8:-4]


def test_boxes_move_and_merge() -> None:
    rng = np.random.default_rng(0)
    regions = [Region((10, 10 + 30 * one, 90, 30 + 30 * one), drafts=["a"]) for one in range(9)]
    draft = PageDraft(regions, size=(100, 300))
    moved = off_by(draft, 3, rng)
    gaps = [
        abs(side - other)
        for a, b in zip(draft.regions, moved.regions, strict=True)
        for side, other in zip(a.bbox or (), b.bbox or (), strict=True)
    ]
    assert max(gaps) == 3
    assert off_by(draft, 0, rng) == draft
    (one,) = merged(draft, 1.0, rng).regions
    assert one.bbox == (10, 10, 90, 270)
    assert one.drafts[0].count("a") == 9
    assert all(overlap(one.bbox, each.bbox or one.bbox) > 0 for each in regions)
    assert merged(draft, 0.0, rng) == draft.__class__(
        merged(draft, 0.0, rng).regions, size=(100, 300)
    )


def _row(page: str, accepted: int, steps: int, seconds: float, **more: object) -> dict:
    return {
        "part": "counts", "method": "paper-literal", "drafter": "ocr", "page": page,
        "accepted": accepted, "steps": steps, "tokens": 100, "cpu_decode": seconds,
        "draft_seconds": 1.0, "is_exact": True, **more,
    }  # fmt: skip


def test_rates_pair_pages_and_the_gate_can_fail() -> None:
    rows = [_row("a", 30, 10, 2.0), _row("b", 10, 10, 2.0)]
    assert aal(rows, 0)["value"] == 2.0
    low, high = aal(rows, 0)["interval"]
    assert low == 1.0
    assert high == 3.0
    plain = [_row("b", 0, 99, 12.0, method="plain"), _row("a", 0, 99, 6.0, method="plain")]
    assert speedup(rows, plain, "cpu_decode", 0)["value"] == pytest.approx(4.5)
    with_draft = speedup(
        rows, [{**one, "draft_seconds": 0} for one in plain], "cpu_decode", 0, True
    )
    assert with_draft["value"] == pytest.approx(3.0)
    assert not gate(rows, DocumentsSettings())[0]["passed"]  # 2.0 is below the range
    rows[1] = _row("b", 40, 10, 2.0)
    assert gate(rows, DocumentsSettings())[0]["passed"]
    rows[1]["is_exact"] = False
    assert not gate(rows, DocumentsSettings())[-1]["passed"]


def test_prices_are_those_of_the_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"forward": {"1": 1.0, "11": 2.0}, "draft": 0.5}))
    prices = Prices.read(path)
    assert prices.decoding({1: 3, 6: 2}) == pytest.approx(3 + 2 * 1.5)
    assert prices.decoding({2: 1}, rows=3) == pytest.approx(1.5)
    path.write_text("[]")
    with pytest.raises(Exception, match="step times"):
        Prices.read(path)


@pytest.mark.slow
def test_the_command_reads_a_page_by_ocr(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "documents.json"
    asked = "--pages 1 --timed 0 --curve-pages 0 --box-pages 1 --visual 64 --reader-pages 1"
    with pytest.raises(SystemExit) as end:
        main(["bench", "documents", *asked.split(), "--json", str(path)])
    assert not end.value.code
    result = json.loads(path.read_text())
    assert all(one["is_exact"] for one in result["readings"])
    ocr = [one for one in result["readings"] if one["drafter"] == "ocr"]
    assert ocr
    assert all(0.5 < one["draft_quality"] < 1 for one in ocr)
    by_draft = {one["drafter"]: one for one in result["readings"] if one["part"] == "gate"}
    assert by_draft["truth"]["steps"] < by_draft["other"]["steps"] / 10
    assert "hsd-unsure" in {one["method"] for one in ocr}
    assert result["epsilon"]["pages"] == 1
    assert 150 <= result["epsilon"]["tokens"] <= 250
    assert result["epsilon"]["reader"] == "miniature"
    assert 0 <= result["epsilon"]["value"] < 0.5  # the miniature reads
    page = report.markdown(result, "documents.json")
    for title in ("Gate", "Table 1", "Table 5", "Table 7", "Table 8", "Boxes", "ε of a trained"):
        assert f"## {title}" in page


def test_only_the_arms_that_are_asked_for_are_counted(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "documents.json"
    nothing = "--pages 1 --timed 0 --curve-pages 0 --box-pages 0 --visual 64 --reader-pages 0"
    with pytest.raises(SystemExit) as end:
        main(["bench", "documents", *nothing.split(), "--arms", "hsd-page", "--json", str(path)])
    assert not end.value.code
    result = json.loads(path.read_text())
    assert [one["method"] for one in result["readings"]] == ["plain", "hsd-page"]
    assert [one["gate"] for one in result["gate"]] == ["texts that are not the page's"]
    with pytest.raises(SystemExit) as end:
        main(["bench", "documents", "--arms", "hsd-pages"])
    assert end.value.code
    assert "hsd-page" in capsys.readouterr().err


def test_a_reader_of_large_pages_reads_large_pages() -> None:
    """The bundled draft can't follow such pages, and it is told what it gets wrong."""
    found = measured_epsilon(1, miniatures.find("document").draft, lambda told: None)
    assert found["reader"] == "reader"
    assert 250 <= found["tokens"] <= 400
    assert found["page_wrong"] > 0.2
    assert found["crop_wrong"] < found["page_wrong"]


def test_a_missing_reader_is_named(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SoonerError, match=r"has no config\.json; train a reader"):
        measured_epsilon(1, tmp_path)
