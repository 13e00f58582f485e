"""The world of the arm: gauges, experts, noise and recipes; robosuite, where it is installed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner.tasks.act.observation import Observation
from sooner.tasks.act.policy import Policy
from sooner_lab.worlds.arm import collect, gauges, rollouts, simulator
from sooner_lab.worlds.arm.collect import BIN, ArmNoise
from sooner_lab.worlds.arm.experts import CLOSE, FASTEST, OPEN, expert_action
from sooner_lab.worlds.arm.learn_arm import ArmReader
from sooner_lab.worlds.arm.simulator import NAMES, TASKS, ArmEnvironment, ArmState
from sooner_lab.worlds.arm.train import train
from worlds.arm_stub import LONGEST, TINY, TINY_HEAD, StubArm, policy_of, trained

needs_robosuite = pytest.mark.skipif(
    any(find_spec(name) is None for name in simulator.NEEDED),
    reason="robosuite is not installed (pip install --no-deps robosuite numba llvmlite termcolor)",
)


def state(**changed: object) -> ArmState:
    """A hand 10 cm above a cube."""
    told: dict = {
        "hand": np.array([0.0, 0.0, 0.92]), "opening": 0.08, "grip": np.array([0.0, 0.0, 0.82]),
        "turn": np.zeros(3), "thing": np.array([0.0, 0.0, 0.02]),
    }  # fmt: skip
    return ArmState(**{**told, **changed})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("arm"))


@pytest.fixture(scope="module")
def policy(home: Path) -> Policy:
    return policy_of(home)


def test_a_gauge_tells_a_number_to_the_millimetre() -> None:
    """A linear layer over a patch's pixels reads sine and cosine of every phase."""
    told = np.random.default_rng(0).uniform(-1, 1, (400, gauges.NUMBERS)).astype(np.float32)
    drawn = gauges.draw(told)
    assert drawn.shape == (400, gauges.SIDE, gauges.SIDE, 3)
    assert drawn.dtype == np.uint8
    patch = drawn[:, : gauges.PATCH, gauges.PATCH : 2 * gauges.PATCH, 0].reshape(400, -1) / 255
    rates = np.pi / 2 * 2.0 ** np.arange(gauges.BANDS)
    waves = np.concatenate([np.sin(rates * told[:, 1:2]), np.cos(rates * told[:, 1:2])], 1)
    inputs = np.c_[patch, np.ones(400)]
    layer = np.linalg.lstsq(inputs[:200], waves[:200], rcond=None)[0]
    assert np.abs(inputs[200:] @ layer - waves[200:]).max() < 0.02
    near = told[:1] + 0.001 / gauges.WAY
    assert (gauges.draw(near) != drawn[:1]).any()


def test_an_expert_comes_down_over_the_cube_closes_and_lifts() -> None:
    aside = expert_action("lift", state(hand=np.array([0.1, 0.0, 0.9])))
    assert aside[0] == -FASTEST
    assert aside[-1] == OPEN
    over = expert_action("lift", state())
    assert over[2] == -FASTEST
    at = expert_action("lift", state(hand=np.array([0.0, 0.0, 0.82])))
    assert at[-1] == CLOSE
    assert np.abs(at[:6]).max() == 0
    held = expert_action("lift", state(hand=np.array([0.0, 0.0, 0.82]), opening=0.04))
    assert held[2] > 0
    assert held[-1] == CLOSE


def test_an_expert_turns_before_it_comes_down() -> None:
    away = np.array([-0.3, 0.1, 0.02])
    turned = expert_action("nut", state(turn=np.array([0.0, 0.0, 0.8]), thing=away))
    assert turned[5] == FASTEST
    assert turned[2] > -FASTEST  # it stays above until it lies right


def test_a_nut_goes_up_before_it_goes_aside_and_is_left_on_the_peg() -> None:
    held = {"hand": np.array([0.0, 0.0, 0.82]), "opening": 0.035}
    low = expert_action("nut", state(thing=np.array([-0.3, 0.1, 0.02]), **held))
    assert low[2] > 0
    assert np.abs(low[:2]).max() == 0
    high = expert_action("nut", state(thing=np.array([-0.3, 0.1, 0.19]), **held))
    assert high[0] == FASTEST
    assert high[1] < 0
    there = expert_action("nut", state(thing=np.array([0.0, 0.0, 0.05]), **held))
    assert there[-1] == OPEN


def test_noise_keeps_its_width_and_spares_the_fingers() -> None:
    noise, rng = ArmNoise(4.0), np.random.default_rng(1)
    drawn = [noise.first(rng)]
    for _ in range(20_000):
        drawn.append(noise.after(drawn[-1], rng))
    path = np.stack(drawn)
    assert path[:, :6].std(0) / (4 * BIN) == pytest.approx(np.ones(6), abs=0.06)
    assert not path[:, 6].any()
    kept = (path[1:, 0] * path[:-1, 0]).mean() / (path[:, 0] ** 2).mean()
    assert kept == pytest.approx(1 - noise.pull, abs=0.03)


def test_axes_lean_to_either_side_or_neither_and_forget_it() -> None:
    noise, rng = ArmNoise(0.0, lean=12.0), np.random.default_rng(2)
    leans = np.stack([noise.leaning(rng) for _ in range(6000)]) / BIN
    assert not leans[:, 6].any()
    sides, counts = np.unique(leans[:, :6].round(), return_counts=True)
    assert sides.tolist() == [-12, 0, 12]
    assert counts / counts.sum() == pytest.approx(np.full(3, 1 / 3), abs=0.01)
    assert abs((leans[1:, 0] * leans[:-1, 0]).mean()) < 0.06 * (leans[:, 0] ** 2).mean()
    assert not ArmNoise(4.0).leaning(rng).any()


def test_training_reads_what_the_policy_will_be_asked(home: Path, policy: Policy) -> None:
    records = collect.load(home / "target" / "data")
    index = np.array([0, 80, 150])
    batch = ArmReader(records).batch(index)
    told = [TASKS[gauges.ORDER[task]].instruction for task in records["tasks"][index]]
    made = policy.processor(list(gauges.draw(records["numbers"][index])), told)
    width = made["input_ids"].shape[1]
    assert torch.equal(batch.ids[:, : -len(NAMES)][:, -width:], made["input_ids"])
    assert torch.equal(batch.mask[:, : -len(NAMES)][:, -width:], made["attention_mask"])
    assert torch.allclose(batch.pixels, made["pixel_values"], atol=1e-5)
    back = policy.tokens.decode(batch.ids[:, -len(NAMES) :].numpy())
    assert np.abs(back - records["actions"][index]).max() <= BIN


def test_a_policy_and_its_heads_are_written(home: Path, policy: Policy) -> None:
    card = json.loads((home / "target" / "checkpoint" / "card.json").read_text())
    assert set(card["held_out"]) == set(TASKS)
    assert card["recipe"]["noise"] == TINY.noise
    assert card["recipe"]["lean"] == TINY.lean
    (action,) = policy.act(
        [Observation(gauges.draw(np.zeros(gauges.NUMBERS, np.float32)), "open the door")]
    )
    assert action.values.shape == (1, 7)
    assert {path.name for path in (home / "head").glob("head*")} == {"head-10", "head-30", "head"}
    steps = [
        json.loads((home / "head" / name / "config.json").read_text())["provenance"]["step"]
        for name in ("head-10", "head-30", "head")
    ]
    assert steps == [1, 3, 10]


def test_training_lowers_the_loss(home: Path) -> None:
    lines = (home / "target" / "log.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    assert told[-1]["nats"] < 5.2 < np.log(480)  # ids; 5.5 nats for the actions alone


def test_a_head_needs_its_target(tmp_path: Path) -> None:
    with pytest.raises(SoonerError, match="train it first"):
        train(tmp_path / "head", TINY_HEAD, progress=False)


def test_episodes_side_by_side_are_those_one_by_one(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "ArmEnvironment", StubArm)
    seeds = (5, -3, 9, 1, -8)
    ended: list[int] = []
    both = rollouts.walk(policy.act, "lift", seeds, rows=2, tell=ended.append)
    alone = [rollouts.walk(policy.act, "lift", [seed])[0] for seed in seeds]
    assert [one.success for one in both] == [seed >= 0 for seed in seeds]
    assert ended == [1, 2, 3, 4, 5]
    for ours, theirs in zip(both, alone, strict=True):
        assert len(ours.numbers) == len(ours.answers) == LONGEST
        assert np.array_equal(np.stack(ours.numbers), np.stack(theirs.numbers))
    short = rollouts.walk(policy.act, "lift", seeds, limit=LONGEST - 1)
    assert [one.success for one in short] == [False] * 5
    assert {len(one.answers) for one in short} == {LONGEST - 1}


def test_a_simulator_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator, "find_spec", lambda name: None)
    with pytest.raises(SoonerError, match="--no-deps robosuite"):
        ArmEnvironment("lift")
    with pytest.raises(SoonerError, match="lift"):
        ArmEnvironment("lfit")


@needs_robosuite
@pytest.mark.parametrize("name", TASKS)
def test_experts_do_their_tasks_and_seeds_repeat(name: str) -> None:
    env = ArmEnvironment(name)
    try:
        first, again, noisy = (
            collect.demonstrate(env, 41, ArmNoise(bins)) for bins in (0.0, 0.0, 4.0)
        )
        other = collect.demonstrate(env, 42, ArmNoise(0.0))
    finally:
        env.close()
    assert first.success
    assert noisy.success
    assert other.success
    assert np.array_equal(first.numbers[0], again.numbers[0])
    assert not np.array_equal(first.numbers[0], other.numbers[0])
    assert np.abs(first.numbers[:, :10]).max() < 1  # hand and grip are never cut off
