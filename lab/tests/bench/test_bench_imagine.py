"""`sooner bench imagine` as a user starts it, on tiny random models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_canvas
from commands import exit_code as run
from sooner import miniatures
from sooner.methods import Autoregressive
from sooner.models import canvas
from sooner_lab.bench.imagine import arms, subjects
from sooner_lab.bench.imagine.run import goals
from sooner_lab.bench.imagine.settings import ARMS
from sooner_lab.bench.imagine.subjects import Subject
from sooner_miniatures.motion_tokenizer import MotionTokenizer, MotionTokenizerConfig


def picture_subject() -> Subject:
    inputs = tiny_canvas.prompts(4)

    def prepare(numbers: Any) -> dict[str, Any]:
        return {name: value[[number % 4 for number in numbers]] for name, value in inputs.items()}

    return Subject("image", "tiny janus", tiny_canvas.canvas(), prepare)


def clip_subject() -> Subject:
    """Five latent frames of 2 x 3 codes, two of them given."""
    torch.manual_seed(0)
    sizes = MotionTokenizerConfig(height=8, width=12, channels=16, blocks=1, codes=24, code_width=4)
    tokenizer = MotionTokenizer(sizes).eval()
    made = canvas(tiny_canvas.cosmos_ar((5, 2, 3)), prefix=2, tokenizer=tokenizer)
    codes = torch.randint(0, 24, (4, 12))
    return Subject(
        "video", "tiny cosmos", made, lambda numbers: {"input_ids": codes[[n % 4 for n in numbers]]}
    )


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"image": picture_subject, "video": clip_subject}
    monkeypatch.setattr(subjects, "load", lambda kind, settings: made[kind]())


SMALL = ["--jacobi-windows", "3,6"]


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
        assert {entry["verdict"] for entry in result[kind]["parity"].values()} == {"identical"}
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
        for name in ("sjd", "gumbel"):  # alike, or a start's gain is told as a coupling's
            pairs = [(arm["init"], arm["window"]) for arm in rows if arm["method"] == name]
            assert pairs == [("random", 3), ("random", 6), (start, 3), (start, 6)]
        for arm in rows:
            assert arm["tokens"] == new
            assert 1 < arm["nfe"] <= new
            assert arm["decode_speedup"] > 0
            assert arm["parity"] == (None if arm["mode"] != "exact" else "identical")
        plain = next(arm for arm in rows if arm["method"] == "plain")
        assert (plain["nfe"], plain["decode_speedup"], plain["window"]) == (new, 1.0, None)


def check_report(target: Path) -> None:
    assert run("bench", "report", str(target)) == 0
    page = target.with_suffix(".md").read_text()
    for title in ("Images: speed (table 1)", "Videos: speed (table 2)"):
        assert title in page
    for kind in ("image", "video"):
        stem = f"figures/imagine-{kind}-windows"
        assert f"({stem}.png)" in page
        assert (target.parent / f"{stem}.png").stat().st_size > 500


def test_goals_are_of_arms_with_the_same_first_drafts() -> None:
    arms = [
        {"kind": "image", "method": method, "window": 64, "init": init, "nfe": nfe,
         "nfe_reduction": 256 / nfe, "decode_speedup": 2.0}
        for method, init, nfe in (("gumbel", "above", 50.0), ("sjd", "above", 100.0),
                                  ("sjd", "random", 60.0))
    ]  # fmt: skip
    judged = {each["goal"]: each["met"] for each in goals({"arms": arms})}
    assert judged == {
        "image: forwards, plain over gumbel, L=64 from above": True,
        "image: forwards, SJD over gumbel, L=64, both from above": True,
        "image: decoding time, plain over gumbel, L=64 from above": False,
    }


@pytest.mark.usefixtures("tiny")
def test_an_interrupted_run_keeps_its_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(kind: str, settings: Any) -> Subject:
        if kind == "video":
            raise KeyboardInterrupt
        return picture_subject()

    monkeypatch.setattr(subjects, "load", stop)
    target = tmp_path / "x.json"
    quick = ["--kind", "both", "--arms", "gumbel", *SMALL, "--json", str(target)]
    assert run("bench", "imagine", *quick) == 130
    result = json.loads(target.read_text())
    assert "parity" in result["image"]
    assert "video" not in result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms", "gumbal"], "did you mean 'gumbel'"),
        (["--kind", "images"], "did you mean 'image'"),
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


@pytest.mark.slow
@pytest.mark.skipif(
    not (miniatures.find("image").target / "config.json").is_file(),
    reason="the image miniature is not in this installation",
)
def test_the_miniature_draws_the_same_faster(tmp_path: Path) -> None:
    target = tmp_path / "x.json"
    arguments = ["--arms", "sjd,gumbel", "--jacobi-windows", "32"]
    assert run("bench", "imagine", *arguments, "--json", str(target)) == 0
    rows = {arm["method"]: arm for arm in json.loads(target.read_text())["arms"]}
    assert rows["gumbel"]["nfe"] < rows["sjd"]["nfe"] < rows["plain"]["nfe"]
    assert rows["gumbel"]["decode_speedup"] > 1
