"""`sooner bench imagine` as a user starts it, on tiny random models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_canvas
from sooner import miniatures
from sooner.cli.main import main
from sooner.methods import Autoregressive, CoupledJacobi
from sooner.models import canvas
from sooner.models.clip_tokenizer import MotionTokenizer, MotionTokenizerConfig
from sooner_lab.bench.imagine import arms, subjects
from sooner_lab.bench.imagine import run as bench_run
from sooner_lab.bench.imagine.settings import ARMS
from sooner_lab.bench.imagine.subjects import Subject
from sooner_lab.worlds.motion import architecture

FIGURES = ("windows", "strength", "hamming")


def picture_subject() -> Subject:
    inputs = tiny_canvas.prompts(4)

    def prepare(numbers: Any) -> dict[str, Any]:
        return {name: value[[number % 4 for number in numbers]] for name, value in inputs.items()}

    return Subject("image", "tiny janus", tiny_canvas.canvas(), prepare)


def clip_subject() -> Subject:
    """Five latent frames of 2 x 3 codes, two of them given."""
    torch.manual_seed(0)
    shape = architecture.MotionShape(
        layers=2, width=32, heads=2, kv_heads=1, intermediate=32, vocab=24, latent_shape=(5, 2, 3)
    )
    sizes = MotionTokenizerConfig(height=8, width=12, channels=16, blocks=1, codes=24, code_width=4)
    tokenizer = MotionTokenizer(sizes).eval()
    made = canvas(architecture.build_model(shape).eval(), prefix=2, tokenizer=tokenizer)
    codes = torch.randint(0, 24, (4, 12))
    return Subject(
        "video", "tiny cosmos", made, lambda numbers: {"input_ids": codes[[n % 4 for n in numbers]]}
    )


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"image": picture_subject, "video": clip_subject}
    monkeypatch.setattr(subjects, "load", lambda kind, settings: made[kind]())


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return int(end.value.code or 0)


SMALL = ["--jacobi-windows", "3,6", "--batch", "2", "--rows", "2"]


@pytest.mark.usefixtures("tiny")
@pytest.mark.slow
def test_a_small_run_measures_judges_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "imagine.json"
    arguments = ["--kind", "both", "--arms", ",".join(ARMS), *SMALL, "--samples", "1"]
    assert run("bench", "imagine", *arguments, "--json", str(target)) == 0
    result = json.loads(target.read_text())
    check_arms(result)
    for kind in ("image", "video"):
        check_kind(result[kind])
    assert result["image"]["batch"]["rows"] == 2
    assert all(goal.keys() >= {"goal", "wanted", "reached", "met"} for goal in result["goals"])
    assert {"git", "argv", "versions", "device", "dtype", "threads", "seed"} <= set(
        result["provenance"]
    )
    output = capsys.readouterr().out
    assert "Images: speed (table 1)" in output
    check_report(target)


def check_arms(result: dict[str, Any]) -> None:
    for kind, new in (("image", 16), ("video", 18)):
        rows = [arm for arm in result["arms"] if arm["kind"] == kind]
        assert {arm["method"] for arm in rows} == set(ARMS)
        start = {"image": "above", "video": "previous-frame"}[kind]
        for name in ("sjd", "gumbel", "gsd"):  # alike, or a start's gain is told as a coupling's
            pairs = [(arm["init"], arm["window"]) for arm in rows if arm["method"] == name]
            assert pairs == [("random", 3), ("random", 6), (start, 3), (start, 6)]
        for arm in rows:
            assert arm["tokens"] == new
            assert 1 < arm["nfe"] <= new
            assert arm["decode_speedup"] > 0
            assert arm["parity"] == (None if arm["mode"] != "exact" else "identical")
        plain = next(arm for arm in rows if arm["method"] == "plain")
        assert (plain["nfe"], plain["decode_speedup"], plain["window"]) == (new, 1.0, None)


def check_kind(part: dict[str, Any]) -> None:
    assert {entry["verdict"] for entry in part["parity"].values()} == {"identical"}
    study = part["study"]
    assert set(study["trajectories"]) == {"sjd", "maximal", "gumbel"}
    assert {entry["strength"] for entry in study["strengths"]} == {0.0, 0.5, 1.0}
    assert {"last", "random", "left", "above"} <= {entry["init"] for entry in study["inits"]}


def check_report(target: Path) -> None:
    assert run("bench", "report", str(target)) == 0
    page = target.with_suffix(".md").read_text()
    for title in ("Goals", "Images: speed (table 1)", "Videos: speed (table 2)"):
        assert title in page
    for kind in ("image", "video"):
        for name in FIGURES:
            stem = f"figures/imagine-{kind}-{name}"
            assert f"({stem}.png)" in page
            assert (target.parent / f"{stem}.png").stat().st_size > 500


@pytest.mark.usefixtures("tiny")
@pytest.mark.slow
def test_parts_are_added_to_an_earlier_result(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    quick = ["--arms", "gumbel", *SMALL, "--json", str(target)]
    assert run("bench", "imagine", "--kind", "both", "--parts", "speed", *quick) == 0
    first = json.loads(target.read_text())
    assert run("bench", "imagine", "--parts", "speed,study", "--add", *quick) == 0
    added = json.loads(target.read_text())
    assert added["video"] == first["video"]
    assert [arm["kind"] for arm in added["arms"]].count("image") == len(first["arms"]) / 2
    assert {arm["kind"] for arm in added["arms"]} == {"image", "video"}
    assert "study" in added["image"]
    assert [run["parts"] for run in added["kept"]] == [["video speed"]]
    assert added["model"] == first["model"]
    assert run("bench", "report", str(target)) == 0
    assert "Of an earlier run: video speed (" in target.with_suffix(".md").read_text()
    first_run = added["kept"][0]["provenance"]
    assert run("bench", "imagine", "--parts", "study", "--add", *quick) == 0
    runs = json.loads(target.read_text())["kept"]
    assert [entry["parts"] for entry in runs] == [["image speed"], ["video speed"]]
    assert runs[1]["provenance"] == first_run


@pytest.mark.usefixtures("tiny")
def test_an_interrupted_run_keeps_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_run, "study", stop)
    target = tmp_path / "x.json"
    assert run("bench", "imagine", "--arms", "gumbel", *SMALL, "--json", str(target)) == 130
    result = json.loads(target.read_text())
    assert {"parity", "batch"} <= set(result["image"])
    assert "study" not in result["image"]


@pytest.mark.usefixtures("tiny")
def test_another_models_result_is_not_added_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "x.json"
    before = {"bench": "imagine", "arms": [], "image": {"model": "other"}, "provenance": {}}
    target.write_text(json.dumps(before))
    quick = ["--parts", "speed", "--arms", "gumbel", *SMALL, "--add"]
    assert run("bench", "imagine", *quick, "--json", str(target)) == 2
    assert "the result to add to is of 'other'" in capsys.readouterr().err
    assert run("bench", "imagine", *quick) == 2
    assert "--add needs the FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms", "gumbal"], "did you mean 'gumbel'"),
        (["--kind", "images"], "did you mean 'image'"),
        (["--parts", "sped"], "did you mean 'speed'"),
        (["--jacobi-windows", "16,x"], "--jacobi-windows is '16,x'"),
        (["--jacobi-windows", "0"], "--jacobi-windows is 0"),
        (["--samples", "0"], "samples is 0"),
        (["--json", "/proc/nowhere/x.json"], "can't write"),
    ],
)
def test_bad_requests_get_a_short_error(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("bench", "imagine", *arguments) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("make", [picture_subject, clip_subject])
def test_the_peer_draws_whole_spans_and_leaves_the_global_generator(make: Any) -> None:
    subject = make()
    before = torch.get_rng_state()
    tokens, seconds = arms.sample_by_generate(subject, 0, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert tokens.shape == (1, subject.canvas.grid.length)
    assert seconds > 0
    assert torch.equal(tokens, arms.sample_by_generate(subject, 0, seed=1)[0])
    beginning, scores = arms.greedy_by_generate(subject, 0, 5)
    assert len(beginning) == len(scores) == 5
    assert arms.draw_beginning(subject, 0, Autoregressive(), 0, 5, do_sample=False) == beginning


def test_forwards_are_counted_for_each_row() -> None:
    subject = picture_subject()
    drawing, nfe = arms.draw_rows(subject, range(3), CoupledJacobi(4), seed=0)
    assert max(nfe) == drawing.stats.nfe
    assert arms.draw_rows(subject, [0], Autoregressive(), seed=0)[1] == [16]


@pytest.mark.slow
@pytest.mark.skipif(
    not (miniatures.find("image").target / "config.json").is_file(),
    reason="the image miniature is not in this installation",
)
def test_the_miniature_draws_the_same_faster(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    arguments = [
        "--parts",
        "speed",
        "--arms",
        "sjd,gumbel",
        "--jacobi-windows",
        "32",
        "--batch",
        "1",
    ]
    assert run("bench", "imagine", *arguments, "--json", str(target)) == 0
    rows = {arm["method"]: arm for arm in json.loads(target.read_text())["arms"]}
    assert rows["gumbel"]["nfe"] < rows["sjd"]["nfe"] < rows["plain"]["nfe"]
    assert rows["gumbel"]["decode_speedup"] > 1
