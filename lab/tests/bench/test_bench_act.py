"""`sooner bench act` on a tiny random policy and the world without a simulator."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tiny_policy
from sooner.cli.main import main
from sooner.errors import SoonerError
from sooner.io import write_json
from sooner_lab.bench import report
from sooner_lab.bench.act import arms, observations, run
from sooner_lab.bench.act.settings import ActSettings
from sooner_lab.robots import metaworld

SETTINGS = ActSettings(
    envs=("table",), tolerances=(3, 31), chosen=31, observations=2, repeats=1, episodes=2,
    parts=("offline", "loops"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms.Policy, "load", lambda *_, **__: tiny_policy.policy(head=True))


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    written: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arms.Policy, "load", lambda *_, **__: tiny_policy.policy(head=True))
        made = run.run(SETTINGS, lambda _: None, lambda so_far: written.append(dict(so_far)))
    assert "loops" not in written[0]  # what is measured is kept at once
    assert written[-1]["loops"] == made["loops"]
    return json.loads(json.dumps(made))  # as it is read again


def named(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in result["arms"] if row["method"] == name)


def test_exact_arms_match_generate(result: dict[str, Any]) -> None:
    for name in ("plain", "hf", "strict", "auto"):
        assert named(result, name)["mode"] == "exact"
        assert named(result, name)["parity"] == "identical"
        assert named(result, name)["p50_ms"] > 0


def test_a_wide_tolerance_accepts_more(result: dict[str, Any]) -> None:
    strict, wide = named(result, "strict"), named(result, "relaxed r=31")
    assert wide["mode"] == "relaxed"
    assert wide["mean_acceptance_length"] > strict["mean_acceptance_length"]


def test_loops_have_a_row_for_each_setting_and_a_total(result: dict[str, Any]) -> None:
    rows = [(row["method"], row["env"]) for row in result["loops"]]
    assert rows == [
        (name, env) for name in ("plain", "relaxed r=3", "relaxed r=31") for env in ("table", "all")
    ]
    assert all(row["episodes"] == 2 for row in result["loops"])


def test_page_and_figures(result: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "act.json"
    write_json(result, path)
    text = report.markdown(result, "act.json")
    for title in ("Goals", "By task (table 1)", "Closed loops"):
        assert title in text
    assert len(report.tables(result)) >= 4
    files = report.write_figures(result, path)
    assert {file.name for file in files} >= {"act-tolerance.png", "act-latency.png"}


def test_recorded_observations_need_no_simulator(tmp_path: Path) -> None:
    Image.fromarray(np.full((20, 20, 3), 90, np.uint8)).save(tmp_path / "a.png")
    lines = [
        {"image": "a.png", "instruction": "open the drawer", "action": [0.05, 0, 0, 1]},
        {"image": "a.png", "instruction": "reach the ball"},
    ]
    file = tmp_path / "seen.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    seen = observations.read(file)
    assert [observation.env for observation in seen] == ["seen", "seen"]
    assert seen[1].action is None
    settings = ActSettings(data=str(file), arms=("plain",), repeats=1, parts=("offline", "loops"))
    made = run.run(settings, lambda _: None)
    assert "loops" not in made
    assert 0 < made["arms"][0]["error"] < 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 1"),
        ('{"instruction": "go"}', "no 'image'"),
        ('{"image": "gone.png", "instruction": "go"}', "gone.png"),
        ("", "no lines"),
    ],
)
def test_bad_observations_raise_a_short_error(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "seen.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(SoonerError, match=message) as error:
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


def test_a_missing_simulator_is_reported_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing may be loaded or recorded first")

    monkeypatch.setattr(arms.Policy, "load", never)
    monkeypatch.setattr(observations, "make", never)
    monkeypatch.setattr(metaworld, "find_spec", lambda name: None)
    with pytest.raises(SoonerError, match=r"pip install 'sooner\[robots\]'") as error:
        run.run(ActSettings(), lambda _: None)
    assert "\n" not in str(error.value)
    monkeypatch.setattr(metaworld, "find_spec", lambda name: name)
    monkeypatch.setattr(metaworld, "find_library", lambda name: None)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    with pytest.raises(SoonerError, match="libosmesa6"):
        run.run(ActSettings(), lambda _: None)
    with pytest.raises(SoonerError, match="unknown environment 'reech'"):
        run.run(ActSettings(envs=("reech",)), lambda _: None)


@pytest.mark.parametrize(
    ("there", "chosen"), [({"OSMesa", "EGL"}, "osmesa"), ({"EGL"}, "egl"), (set(), "osmesa")]
)
def test_rendering_takes_the_library_that_is_there(
    monkeypatch: pytest.MonkeyPatch, there: set[str], chosen: str
) -> None:
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(metaworld.sys, "platform", "linux")
    monkeypatch.setattr(metaworld, "find_library", lambda name: name if name in there else None)
    metaworld.headless()
    assert os.environ["MUJOCO_GL"] == chosen
