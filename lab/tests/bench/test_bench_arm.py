"""`sooner bench arm`: verdicts on made-up episodes, drafts without a head, loops on a stand-in."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sooner.errors import SoonerError
from sooner.methods.tolerance import Relaxed, Tolerance
from sooner.tasks.act.batch import decode
from sooner.tasks.act.policy import Policy
from sooner_lab.bench import report
from sooner_lab.bench.arm import acceptance as accepting
from sooner_lab.bench.arm import judging, loops
from sooner_lab.bench.arm import settings as fixed
from sooner_lab.bench.arm.drafts import ActionBigrams, GuessedAction, repeated
from sooner_lab.bench.arm.run import run
from sooner_lab.bench.arm.settings import ArmSettings
from sooner_lab.worlds.arm import gauges, rollouts, simulator
from sooner_lab.worlds.arm.simulator import NAMES
from worlds.arm_stub import LONGEST, StubArm, policy_of, trained

ROWS = 12


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("arm"))


@pytest.fixture(scope="module")
def policy(models: Path) -> Policy:
    return policy_of(models)


def episode(arm: str, seed: int, success: bool, task: str = "lift", **more: Any) -> dict[str, Any]:
    return {"arm": arm, "task": task, "seed": seed, "success": success, "steps": 50, **more}


def made(lost: int, won: int, starts: int = 100, arm: str = "r=9") -> list[dict[str, Any]]:
    """Plain does all but the last ten starts; the arm loses some of these, and wins of the ten."""
    plain = [seed < starts - 10 for seed in range(starts)]
    ours = [(done and seed >= lost) or seed >= starts - won for seed, done in enumerate(plain)]
    return [
        *(episode("plain", seed, done) for seed, done in enumerate(plain)),
        *(episode(arm, seed, done) for seed, done in enumerate(ours)),
    ]


# --- verdicts


def test_arms_are_held_against_plain_on_the_same_starts() -> None:
    told = judging.paired(made(lost=6, won=2), "r=9")
    assert (told["starts"], told["lost"], told["won"]) == (100, 6, 2)
    assert (told["plain"], told["success"]) == (90, 86)
    assert told["difference"] == pytest.approx(-4)
    low, high = told["interval"]
    assert low < -4 < high
    assert told["p"] == pytest.approx(2 * 37 / 256)  # 8 discordant starts, at most 2 of one kind
    same = judging.paired(made(lost=0, won=0), "r=9")
    assert (same["difference"], same["interval"], same["p"]) == (0, [0, 0], 1)


@pytest.mark.parametrize(("lost", "met"), [(0, True), (1, True), (12, False)])
def test_a_goal_is_met_by_its_lower_bound(lost: int, met: bool) -> None:
    (goal,) = judging.goals(made(lost, won=0))
    assert goal["met"] is met
    assert goal["wanted"] == fixed.MARGIN


def test_tasks_count_alike_in_the_gate() -> None:
    rows = [episode("expert", seed, True) for seed in range(30)]
    rows += [episode("expert", seed, False, "nut") for seed in range(10)]
    assert judging.rate(rows, "expert") == 50


def test_a_gate_that_shaking_does_not_move_is_not_passed() -> None:
    base = [
        *made(0, 0),
        *(episode("expert", seed, True) for seed in range(20)),
        *(episode("blind", seed, False) for seed in range(20)),
        *(episode("random", seed, False) for seed in range(20)),
    ]
    shaken = [episode("shaken", seed, False) for seed in range(20)]
    assert all(one["holds"] for one in judging.gate(base + shaken))
    calm = [episode("shaken", seed, True) for seed in range(20)]
    held = {one["what"]: one["holds"] for one in judging.gate(base + calm)}
    assert not held["shaken"]
    assert held["plain"]


def test_strayed_episodes_are_told_in_thirds_of_their_task() -> None:
    rows = [episode("plain", seed, True, task) for task in ("lift", "nut") for seed in range(9)]
    rows += [
        episode("r=9", seed, seed < 6, task, deviation=seed + 100.0 * (task == "nut"))
        for task in ("lift", "nut")
        for seed in range(9)
    ]
    rows += [{**episode("r=9", 20, False), "steps": 5, "deviation": 0.0}]  # too short to compare
    found = judging.by_deviation(rows)
    assert [one["episodes"] for one in found] == [6, 6, 6]
    assert [one["success"] for one in found] == [100, 100, 0]
    assert [one["plain"] for one in found] == [100, 100, 100]
    assert found[0]["deviation"] < found[1]["deviation"] < found[2]["deviation"]


def test_an_acceptance_length_counts_the_round_s_own_token() -> None:
    arm = {"rounds": [2, 4], "accepted": [2, 4], "draft": "head", "shape": "chain", "tolerance": 0,
           "mean_acceptance_length": 2.0}  # fmt: skip
    assert judging.length(arm)["value"] == 2
    (bound,) = judging.regime([arm], "head")
    assert bound["holds"]
    assert bound["reached"] == 2
    better = {**arm, "draft": "head-30", "mean_acceptance_length": 1.9}
    worse = {**arm, "draft": "head-10", "mean_acceptance_length": 1.2}
    heads = ("head-10", "head-30", "head")
    assert judging.head_like_the_paper_s([worse, arm, better], heads) == "head-30"


# --- counting


def test_a_listener_counts_tries_up_to_the_first_rejection() -> None:
    count = accepting.AcceptanceCount()
    hear = count.listener([4, 4])
    hear(0, [1], 0)  # the prefill's
    hear(0, [2, 3, 4], 2)  # places 1 and 2 accepted, 3 is the target's own
    hear(0, [5, 6, 7], 2)  # places 4 and 5; the last number is never drafted
    hear(1, [1], 0)
    hear(1, [2], 0)
    assert dict(count.rounds) == {4: 3}
    assert dict(count.accepted) == {4: 4}
    assert count.tried == [0, 2, 1, 1, 1, 1, 0]
    assert count.hit == [0, 1, 1, 0, 1, 1, 0]
    assert count.lengths == [1, 0, 2, 0, 0, 0]
    assert count.begun == [2, 0, 0, 1, 0, 0]
    assert count.gained == [2, 0, 0, 2, 0, 0]


# --- drafts without a head


def asked(policy: Policy) -> Any:
    rng = np.random.default_rng(3)
    told = rng.uniform(-1, 1, (ROWS, gauges.NUMBERS)).astype(np.float32)
    return policy.processor(list(gauges.draw(told)), ["open the door"] * ROWS)


def said(policy: Policy, method: Any, **options: Any) -> np.ndarray:
    return decode(policy.adapter, lambda: asked(policy), method, len(NAMES), **options).ids


@pytest.fixture(scope="module")
def exact(policy: Policy) -> np.ndarray:
    """What HF's own `generate` says."""
    found = policy.model.generate(**asked(policy), max_new_tokens=len(NAMES), do_sample=False)
    return found[:, -len(NAMES) :].numpy()


def test_an_action_that_repeats_is_accepted_whole(policy: Policy, exact: np.ndarray) -> None:
    count = accepting.AcceptanceCount()
    method = GuessedAction(repeated(exact), accepting.DEPTH)
    found = said(policy, method, on_tokens=count.listener([0] * ROWS))
    assert np.array_equal(found, exact)
    assert count.rounds[0] == ROWS
    assert count.accepted[0] == ROWS * accepting.DEPTH


@pytest.mark.parametrize("shape", accepting.WIDTHS)
def test_bigrams_are_exact_and_of_use(policy: Policy, exact: np.ndarray, shape: str) -> None:
    count = accepting.AcceptanceCount()
    widths = accepting.WIDTHS[shape]
    method = GuessedAction(ActionBigrams(exact).guess(widths), widths[0] * accepting.DEPTH)
    found = said(policy, method, on_tokens=count.listener([0] * ROWS))
    assert np.array_equal(found, exact)
    assert count.accepted[0] > 0


def test_an_action_that_is_near_passes_when_relaxed(policy: Policy, exact: np.ndarray) -> None:
    count = accepting.AcceptanceCount()
    near = np.where(exact > policy.tokens.first_id + 4, exact - 3, exact + 3)
    drafted = GuessedAction(repeated(near), accepting.DEPTH)
    wide = Relaxed(drafted, Tolerance(policy.tokens, len(NAMES), 40))
    found = said(policy, wide, on_tokens=count.listener([0] * ROWS))
    assert count.accepted[0] == ROWS * accepting.DEPTH
    assert np.array_equal(found[:, 1:-1], near[:, 1:-1])
    assert np.array_equal(said(policy, drafted), exact)


def test_bigrams_fall_back_to_what_is_mostly_said_there() -> None:
    table = ActionBigrams(np.array([[1, 2, 3], [1, 2, 4], [1, 5, 4]]))
    assert table.after(1, 1, 2) == [2, 5]
    assert table.after(2, 99, 1) == [4]
    tokens, parents = table.guess((2,))(0, [1])
    assert tokens == [2, 5, 3, 4]
    assert parents == [-1, -1, 0, 1]


# --- the whole


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "ArmEnvironment", StubArm)
    monkeypatch.setattr(loops, "ArmEnvironment", StubArm)
    loops._environments.cache_clear()
    monkeypatch.setattr(simulator, "find_spec", lambda name: True)


@pytest.mark.parametrize("arm", ["plain", "r=9", "blind", "random", "shaken"])
def test_an_arm_acts_in_closed_loops(models: Path, stubbed: None, arm: str) -> None:
    folders = models / "target" / "checkpoint", models / "head" / "head"
    work = loops.ArmWork(arm, "lift", (3, 4), str(folders[0]), str(folders[1]))
    rows = loops.episodes(work)
    assert [(row["arm"], row["seed"], row["success"]) for row in rows] == [
        (arm, 3, True), (arm, 4, True)
    ]  # fmt: skip
    assert all(row["steps"] == LONGEST for row in rows)
    assert all(("deviation" in row) == (arm == "r=9") for row in rows)


def test_all_starts_are_shared_out_once(models: Path) -> None:
    jobs = list(loops._jobs(ArmSettings(models), "head-30"))
    assert {Path(job.head).name for job in jobs} == {"head-30"}
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.arm] = counts.get(job.arm, 0) + len(job.seeds)
    assert counts == {
        "plain": 320, "r=5": 320, "r=9": 320, "r=15": 320,
        "expert": 60, "blind": 60, "random": 60, "shaken": 60,
    }  # fmt: skip
    only = list(loops._jobs(ArmSettings(models, parts=("gate",), starts=5), "head"))
    assert sum(len(job.seeds) for job in only) == 5 * 5 * 3


def test_an_interrupted_run_begins_nothing_more(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[loops.ArmWork] = []

    def act(work: loops.ArmWork) -> list[dict[str, Any]]:
        begun.append(work)
        time.sleep(0.01)
        return []

    def interrupted(line: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loops, "ProcessPoolExecutor", lambda count, how: ThreadPoolExecutor(1))
    monkeypatch.setattr(loops, "episodes", act)
    with pytest.raises(KeyboardInterrupt):
        loops.loops(ArmSettings(models), "head", interrupted)
    assert 1 <= len(begun) < len(list(loops._jobs(ArmSettings(models), "head"))) / 2


def test_a_result_has_its_page(
    models: Path, stubbed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fixed, "MOMENT_EPISODES", 2)
    settings = ArmSettings(models, parts=("acceptance",))
    result = run(settings, progress=lambda line: None)
    arms = result["acceptance"]["arms"]
    # Three heads and bigrams as chains and trees, the last action as chains, the paper's tree.
    assert len(arms) == 4 * (2 * 4 + 1 + 1)
    for one in arms:
        assert sum(one["lengths"]) == pytest.approx(100)
    assert all(one["differing"] == 0 for one in arms if not one["tolerance"])
    whole = {**result, "episodes": made(3, 1) + made(3, 1, arm="r=5") + made(3, 1, arm="r=15")}
    whole["goals"] = judging.goals(whole["episodes"])
    whole["gate"] = [
        {"what": "plain", "wanted": [60, 98], "reached": 100.0, "holds": False, "why": "…"}
    ]
    page = report.markdown(whole, "arm.json")
    assert "may not judge" in page
    assert "| last action | chain |" in page
    assert "Success by tolerance" in page
    lengths = {
        one["tolerance"]: one["mean_acceptance_length"]
        for one in arms
        if (one["draft"], one["shape"]) == ("head", "chain")
    }
    assert f"| {lengths[9] / lengths[0]:.2f}× |" in page


def test_what_is_not_trained_is_named(tmp_path: Path, stubbed: None) -> None:
    with pytest.raises(SoonerError, match="has no target/checkpoint"):
        run(ArmSettings(tmp_path), progress=lambda line: None)
    with pytest.raises(SoonerError, match="starts"):
        replace(ArmSettings(tmp_path), starts=0)
