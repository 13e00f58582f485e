"""`sooner eval docs` through its entry point, with a parser that needs no model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation import benchmarks
from evaluation.benchmarks import FRUIT_PAGE, TWO
from sooner.cli.main import main
from sooner.cli.parse import ParseOptions
from sooner_lab.evaluation.documents import load
from sooner_lab.evaluation.documents.speed import speed_lines, speeds
from sooner_lab.worlds.document import render, world
from tasks.drafting import EchoParser, pdf


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs the command in this process."""
    threads = torch.get_num_threads()

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(["eval", "docs", *(str(argument) for argument in arguments)])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return Outcome(int(left.value.code or 0), output.out, output.err)

    yield call
    torch.set_num_threads(threads)


@pytest.fixture
def parser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> EchoParser:
    """Takes the model's place: says what was drafted."""
    echo = EchoParser()
    (tmp_path / "m").mkdir()  # hashed, never loaded
    monkeypatch.setattr(ParseOptions, "load", lambda self, display, processes: echo)
    return echo


def drafts(folder: Path) -> str:
    """Texts of both pages, as drafts."""
    folder.mkdir()
    (folder / "one.md").write_text(FRUIT_PAGE)
    (folder / "two.md").write_text(TWO)
    return f"text:{folder}"


def test_predictions_are_scored_and_written_for_the_official_scorer(
    run: Run, tmp_path: Path
) -> None:
    folder = benchmarks.omnidocbench(tmp_path / "b", pictures=False)
    source = tmp_path / "p"
    source.mkdir()
    (source / "one.png.md").write_text(FRUIT_PAGE)
    out, result = tmp_path / "o", tmp_path / "r" / "result.json"
    outcome = run(folder, "--predictions", source, "-o", out, "--json", result, "-q")
    assert outcome.code == 0
    assert "OmniDocBench, 2 pages" in outcome.out
    assert "language: english" in outcome.out
    assert "two: no prediction" in outcome.out
    assert "not official figures" in outcome.out
    assert (out / "one.md").read_text() == FRUIT_PAGE
    assert (out / "two.md").read_text() == ""
    report = json.loads(result.read_text())
    assert report["counts"] == {"pages": 2, "empty": 1}
    assert report["versions"]["rapidfuzz"]
    assert report["settings"] == {"predictions": str(source)}
    assert {page["page"] for page in report["pages"]} == {"one", "two"}


def test_pages_are_parsed_scored_and_not_parsed_again(
    run: Run, parser: EchoParser, tmp_path: Path
) -> None:
    folder, out = benchmarks.omnidocbench(tmp_path / "b"), tmp_path / "o"
    arguments = (folder, "-o", out, "--drafter", drafts(tmp_path / "d"), "--model", tmp_path / "m")
    first = run(*arguments, "--json", tmp_path / "r.json")
    assert first.code == 0
    names = [path.name for path in out.iterdir() if not path.name.startswith(".")]
    assert sorted(names) == ["manifest.jsonl", "one.md", "two.md"]
    assert "水果很便宜" in (out / "two.md").read_text()
    assert len(parser.report) == 2
    assert json.loads((tmp_path / "r.json").read_text())["settings"]["acceptance_threshold"] == 1
    again = run(*arguments)
    assert again.code == 0
    assert again.out == first.out
    assert len(parser.report) == 2
    (out / "one.md").unlink()
    assert run(*arguments).code == 0
    assert len(parser.report) == 2  # made of what was parsed
    assert (out / "one.md").exists()


def test_a_page_that_fails_counts_as_empty_and_is_tried_again(
    run: Run, parser: EchoParser, tmp_path: Path
) -> None:
    folder, out = benchmarks.omnidocbench(tmp_path / "b"), tmp_path / "o"
    (folder / "images" / "two.jpg").write_bytes(b"no picture")
    arguments = (folder, "-o", out, "--drafter", drafts(tmp_path / "d"), "--model", tmp_path / "m")
    outcome = run(*arguments)
    assert outcome.code == 2
    assert "1 of 2 pages count as empty" in outcome.out
    assert (out / "two.md").read_text() == ""
    benchmarks.draw(folder / "images" / "two.jpg")
    assert run(*arguments).code == 0
    assert "水果很便宜" in (out / "two.md").read_text()


def test_pdf_pages_are_called_as_olmocr_wants_them(
    run: Run, parser: EchoParser, tmp_path: Path
) -> None:
    folder, out = benchmarks.olmocr(tmp_path / "b"), tmp_path / "o"
    for name, pages in (("a/x.pdf", 1), ("b.pdf", 2), ("c.pdf", 1)):
        path = folder / "bench_data" / "pdfs" / name
        path.parent.mkdir(exist_ok=True)
        pdf(path, pages)
    outcome = run(folder, "-o", out, "--drafter", "text-layer", "--model", tmp_path / "m")
    assert outcome.code == 0
    names = ["a/x_pg1_repeat1.md", "b_pg1_repeat1.md", "b_pg2_repeat1.md", "c_pg1_repeat1.md"]
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.md")) == names
    assert "page 2 says so" in (out / "b_pg2_repeat1.md").read_text()
    assert "left out: math tests (1)" in outcome.out


def test_wrong_arguments_are_a_single_line(run: Run, parser: EchoParser, tmp_path: Path) -> None:
    folder = benchmarks.omnidocbench(tmp_path / "b")
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, message in (
        ((folder,), "give -o FOLDER"),
        ((empty, "--predictions", empty), "holds no known benchmark"),
        ((folder, "--predictions", tmp_path / "no"), "does not exist"),
        ((folder, "--predictions", empty), "has no prediction"),
        ((folder, "--benchmark", "omnidoc", "--predictions", empty), "did you mean"),
        ((folder, "--predictions", empty, "--limit", 0), "limit is 0"),
        ((folder, "-o", tmp_path / "o", "--model", tmp_path / "m", "--timeout", 0), "above 0"),
    ):
        outcome = run(*arguments)
        assert outcome.code == 2
        assert message in outcome.err
        assert outcome.err.count("\n") == 1
    shutil.rmtree(folder / "images")
    outcome = run(folder, "-o", tmp_path / "o", "--model", tmp_path / "m")
    assert outcome.code == 2
    assert "2 of 2 pages" in outcome.err


def _line(number: int, plain: float, steps: int, aal: float, **more: object) -> dict:
    """A page that took a second with drafts, four tenths of it in decoding."""
    compared = {"parity": "identical", "decode_speedup": plain, "e2e_speedup": 2.0,
                "plain_seconds": 2.0}  # fmt: skip
    return {"page": number, "mode": "exact", "steps": steps, "aal": aal,
            "seconds": {"decode": 0.4}, "compared": compared, **more}  # fmt: skip


def test_speed_is_a_rate_of_totals_by_category(tmp_path: Path) -> None:
    benchmark = load(benchmarks.omnidocbench(tmp_path / "b", pictures=False))
    first, two = (sample.name for sample in benchmark.samples)
    groups = speeds({first: _line(1, 3.0, 10, 4.0), two: _line(1, 5.0, 30, 2.0)}, benchmark)
    by_group = {each.group: each for each in groups}
    whole = by_group["all", ""]
    assert whole.aal is not None
    assert whole.aal.value == pytest.approx((40 + 60) / 40)
    assert whole.decode is not None
    assert whole.decode.value == pytest.approx((1.2 + 2.0) / 0.8)
    assert whole.decode.interval == pytest.approx((3.0, 5.0))
    assert whole.e2e is not None
    assert whole.e2e.value == pytest.approx(2.0)
    english = by_group["language", "english"]
    assert (english.pages, english.decode and english.decode.value) == (1, pytest.approx(3.0))
    cut = _line(1, 3.0, 10, 4.0)
    cut["compared"] = {**cut["compared"], "decode_speedup": None, "e2e_speedup": None}
    wrong = {**cut, "compared": {**cut["compared"], "parity": "differs from letter 3 on"}}
    (speed, *_) = speeds({first: wrong, two: _line(1, 5.0, 30, 2.0)}, benchmark)
    assert (speed.pages, speed.asked, speed.wrong) == (1, 2, 1)
    lines = list(speed_lines([speed], 3))
    assert any("a bug" in line for line in lines)
    assert any("1 of 3 pages were not compared" in line for line in lines)
    assert any("did not come to their end" in line for line in speed_lines(
        speeds({first: cut, two: _line(1, 5.0, 30, 2.0)}, benchmark), 2))  # fmt: skip
    assert "--compare --fresh" in next(iter(speed_lines([], 2)))


@pytest.mark.lab
def test_the_miniature_is_compared_on_its_pages(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    drawn = [world.sample_page(rng, 6, 16) for _ in range(2)]
    pages = [
        benchmarks.omni_page(f"{number}.png", [benchmarks.block("text_block", 1, text="x")],
                             layout="single_column" if number else "double_column")
        for number in range(2)
    ]  # fmt: skip
    folder = benchmarks.omnidocbench(tmp_path / "b", pages, pictures=False)
    (tmp_path / "d").mkdir()
    for number, page in enumerate(drawn):
        picture = Image.fromarray(render.rgb(render.draw(page)))
        picture.save(folder / "images" / f"{number}.png")
        (tmp_path / "d" / f"{number}.md").write_text(page.markdown)
    outcome = run(folder, "-o", tmp_path / "o", "--compare", "--json", tmp_path / "r.json",
                "--drafter", f"text:{tmp_path / 'd'}", "--model", "miniature", "-q")  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "SR decode" in outcome.out
    assert "layout: double_column" in outcome.out
    speed = json.loads((tmp_path / "r.json").read_text())["speed"]
    assert speed[0]["pages"] == 2
    assert speed[0]["wrong"] == 0
    assert speed[0]["aal"]["value"] > 3  # the drafts are the truth, and the miniature reads
    assert speed[0]["decode"]["value"] > 1
    again = run(folder, "--predictions", tmp_path / "o", "--compare")
    assert again.code == 2
    assert "leave --predictions out" in again.err
