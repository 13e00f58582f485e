"""`sooner bench act` on a tiny random policy and the world without a simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tiny_policy
from sooner.bench import report
from sooner.bench.act import arms, observations, page, run
from sooner.bench.act.arms import Positions
from sooner.bench.act.settings import ActSettings
from sooner.cli.main import main
from sooner.errors import SoonerError

SETTINGS = ActSettings(
    envs=("table",), tolerances=(3, 31), chosen=31, observations=2, repeats=1, episodes=2,
    parts=("offline", "cases", "loops"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms, "load", lambda *_, **__: tiny_policy.policy(head=True))


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    kept: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arms, "load", lambda *_, **__: tiny_policy.policy(head=True))
        made = run.run(SETTINGS, lambda _: None, lambda so_far: kept.append(dict(so_far)))
    assert "loops" not in kept[0]  # what is measured is kept at once
    assert kept[-1]["loops"] == made["loops"]
    return json.loads(json.dumps(made))  # as it is read again


def named(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in result["arms"] if row["method"] == name)


def test_exact_arms_say_what_generate_says(result: dict[str, Any]) -> None:
    for name in ("plain", "hf", "strict", "auto"):
        assert named(result, name)["mode"] == "exact"
        assert named(result, name)["parity"] == "identical"
        assert named(result, name)["p50_ms"] > 0


def test_a_wide_tolerance_accepts_more_and_tells_how_far_it_is(result: dict[str, Any]) -> None:
    strict, wide = named(result, "strict"), named(result, "relaxed r=31")
    assert wide["mode"] == "relaxed"
    assert wide["mean_acceptance_length"] > strict["mean_acceptance_length"]
    deviation = wide["deviation"]
    assert deviation["names"] == ["dx", "dy", "dz", "gripper"]
    assert len(deviation["mean_bins"]) == 4
    assert max(deviation["mean_bins"][:3]) > 0
    assert strict["deviation"] is None


def test_positions_add_up(result: dict[str, Any]) -> None:
    """A round behind each position; position 0 begins every action."""
    for name in ("strict", "relaxed r=31"):
        row = named(result, name)
        assert "0" in row["positions"]
        assert max(map(int, row["positions"])) <= 6
        means = [part["positions"] for part in row["by_env"]]
        assert means == [row["positions"]]  # there is one environment


def test_positions_count_behind_the_first_token() -> None:
    places = Positions()
    for said in ([[5], [6, 7, 8], [9]], [[5], [6], [7, 8]]):
        places.start()
        for new, drafted in zip(said, (0, len(said[1]) - 1, len(said[2]) - 1), strict=True):
            places(0, new, drafted)
    assert places.means() == {0: 1.0, 1: 1.0, 3: 0.0}


def test_loops_have_a_row_for_each_setting_and_one_for_all(result: dict[str, Any]) -> None:
    told = [(row["method"], row["env"]) for row in result["loops"]]
    assert told == [
        (name, env) for name in ("plain", "relaxed r=3", "relaxed r=31") for env in ("table", "all")
    ]
    assert all(row["episodes"] == 2 for row in result["loops"])


def test_cases_show_every_round(result: dict[str, Any]) -> None:
    [case] = result["cases"]
    assert case["env"] == "table"
    for rounds in case["arms"].values():
        assert sum(len(one["bins"]) for one in rounds) == 8
        assert rounds[0]["drafted"] == 0
        assert all(one["drafted"] <= len(one["bins"]) - 1 for one in rounds)


def test_goals_compare_with_what_was_wanted(result: dict[str, Any]) -> None:
    goals = {one["goal"]: one for one in result["goals"]}
    ratio = goals["acceptance length, relaxed r=31 over strict"]
    lengths = [named(result, name)["mean_acceptance_length"] for name in ("relaxed r=31", "strict")]
    assert ratio["reached"] == pytest.approx(lengths[0] / lengths[1])
    assert ratio["met"] == (ratio["reached"] >= 1.44)


def test_page_and_figures(result: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "act.json"
    report.write_json(result, path)
    text = report.markdown(result, "act.json")
    for title in ("Goals", "By task (table 1)", "(table 2)", "(table 3)", "Closed loops"):
        assert title in text
    assert len(page.tables(result)) >= 7
    files = report.write_figures(result, path)
    assert {file.name for file in files} >= {"act-tolerance.png", "act-latency.png"}


def test_own_observations_need_no_simulator(tmp_path: Path) -> None:
    Image.fromarray(np.full((20, 20, 3), 90, np.uint8)).save(tmp_path / "a.png")
    lines = [
        {"image": "a.png", "instruction": "open the drawer", "action": [0.05, 0, 0, 1]},
        {"image": "a.png", "instruction": "reach the ball"},
    ]
    file = tmp_path / "seen.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    seen = observations.read(file)
    assert [one.env for one in seen] == ["seen", "seen"]
    assert seen[1].action is None
    settings = ActSettings(data=str(file), arms=("plain",), repeats=1, parts=("offline", "loops"))
    made = run.run(settings, lambda _: None)
    assert "loops" not in made
    assert 0 < made["arms"][0]["error"] < 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 1"),
        ('{"instruction": "go"}', "no 'image'"),
        ('{"image": "gone.png", "instruction": "go"}', "gone.png"),
        ("", "no lines"),
    ],
)
def test_bad_observations_are_one_line(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "seen.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(SoonerError, match=told) as error:
        observations.read(file)
    assert "\n" not in str(error.value)


def test_a_world_without_expert_is_named() -> None:
    class Bare:
        def close(self) -> None:
            """Nothing."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observations, "make", lambda name: Bare())
        with pytest.raises(SoonerError, match="has no expert"):
            observations.record(("bare",), 1, 0)


def test_no_episodes_is_refused_and_not_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", "act", "--episodes", "0"])
    assert left.value.code
    assert "episodes is 0" in capsys.readouterr().err
