"""`sooner act` as a person runs it."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from commands import Run, start
from serve.robots import body_of, post, request
from sooner.tasks.act import Observation, Policy
from tiny_policy import INSTRUCTIONS, image, policy


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return policy(head=True)


@pytest.fixture(scope="module")
def folder(tiny: Policy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, its head, and a picture."""
    home = tmp_path_factory.mktemp("policy")
    tiny.model.save_pretrained(home / "target")
    tiny.processor.save_pretrained(home / "target")
    tiny.head.save_pretrained(home / "head")
    Image.fromarray(image()).save(home / "view.png")
    return home


def of(folder: Path) -> list[object]:
    return ["--model", folder / "target", "--head", folder / "head"]


def test_once_prints_the_action_as_json(run: Run, tiny: Policy, folder: Path) -> None:
    view = folder / "view.png"
    done = run("act", "once", view, INSTRUCTIONS[0], *of(folder), "--method", "strict")
    assert done.code == 0
    report = json.loads(done.out)
    expected = tiny.act([Observation(image(), INSTRUCTIONS[0])], method="plain")[0]
    np.testing.assert_array_equal(report["action"], expected.values)
    assert (report["method"], report["mode"]) == ("strict", "exact")
    assert "tokens: 8, forwards: " in done.err


def test_once_reports_how_far_a_relaxed_action_is_from_the_exact_action(
    run: Run, folder: Path
) -> None:
    relaxed = ("--method", "relaxed", "--tolerance", "31", "--compare")
    done = run("act", "once", folder / "view.png", "open", *of(folder), *relaxed)
    assert done.code == 0
    report = json.loads(done.out)
    assert report["mode"] == "relaxed"
    assert len(report["from_exact"]["mean"]) == 4
    assert report["deviation"]["max_bins"][3] == 0
    assert "from exact, mean/max (in bins): dx" in done.err


def test_rollouts_count_successes_and_write_results(run: Run, folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ("--env", "table", "--episodes", 2, "--method", "plain", "--json", report)
    done = run("act", "rollout", *of(folder), *options)
    assert done.code == 0
    results = json.loads(report.read_text())
    assert [episode["seed"] for episode in results["episodes"]] == [0, 1]
    assert results["success_rate"] == np.mean(
        [episode["success"] for episode in results["episodes"]]
    )
    assert results["actions"] == sum(episode["steps"] for episode in results["episodes"])
    assert (results["mode"], results["mean_acceptance_length"]) == ("exact", 1.0)
    assert results["methods"] == {"plain": results["calls"]}
    assert results["seed"] == 0
    assert "success rate: " in done.err


BAD: list[tuple[list[Any], str]] = [
    (["once", "none.png", "open"], "image 'none.png' can't be read"),
    (["once", "VIEW", " "], "instruction is empty"),
    (["once", "VIEW", "open", "--unnorm-key", "tabel"], "unknown unnorm_key 'tabel'"),
    (["once", "VIEW", "open", "--method", "relaxd"], "unknown method 'relaxd' (did you mean"),
    (["once", "VIEW", "open", "--tolerance", "1,2,3,4,5"], "5 values, an action has 4"),
    (
        ["once", "VIEW", "open", "--head", "nowhere"],
        "'nowhere' has no readable config",
    ),
    (["once", "VIEW", "open", "--model", "./nowhere"], "model folder './nowhere' does not exist"),
    (["once", "VIEW", "open", "--device", "gpu"], "unknown device 'gpu'"),
    (["once", "VIEW", "open", "--threads", "0"], "threads is 0"),
    (["rollout", "--env", "tabel"], "unknown environment 'tabel' (did you mean 'table'?)"),
    (["rollout", "--env", ","], "no environment given"),
    (
        ["rollout", "--env", "table", "--episodes", "0"],
        "episodes is 0; it must be",
    ),
    (["serve", "--host", "0.0.0.0"], "can be reached from other machines; give --token"),
    (["serve", "--port", "99999"], "port is 99999"),
    (["serve", "--max-batch", "0"], "max_batch is 0"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_input_is_a_single_line(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.delenv("SOONER_TOKEN", raising=False)
    arguments = [
        str(folder / "view.png") if argument == "VIEW" else argument for argument in arguments
    ]
    model = [] if "--model" in arguments else ["--model", folder / "target"]
    done = run("act", *arguments, "-q", *model)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert message in line


@pytest.mark.slow
def test_a_served_policy_answers_until_it_is_stopped(tiny: Policy, folder: Path) -> None:
    with start("act", "serve", "--port", 0, *of(folder), "--method", "strict") as server:
        assert server.stderr is not None
        lines = iter(server.stderr.readline, "")
        line = next(line for line in lines if "acts at" in line)
        match = re.search(r"http://[0-9.:]+", line)
        assert match is not None
        seen = Observation(image(1), INSTRUCTIONS[1])
        status, answer = post(match[0], body_of(request(1)))
        server.send_signal(signal.SIGINT)
        rest = server.stderr.read()
        assert server.wait(60) == 130
    expected = tiny.act([seen], method="plain")[0].values.tolist()
    assert (status, answer) == (200, expected if len(expected) > 1 else expected[0])
    assert "Traceback" not in rest
