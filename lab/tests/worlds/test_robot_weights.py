"""The shipped policy and its head: real classes, honest cards, actions that make sense."""

from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sooner import miniatures
from sooner.errors import SoonerError
from sooner.methods.trained import load_for
from sooner.models.openvla.model import OpenVLAForActionPrediction
from sooner.robots import make
from sooner.tasks.act import Observation, Policy
from sooner.tasks.act.rollout import run_rollouts

ROBOT = miniatures.find("robot")
EPISODES = range(4_000_000, 4_000_006)  # goals that neither training nor benchmarks have shown


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy.load(device="cpu", allowance=9)


@pytest.fixture(scope="module")
def moments() -> list[tuple[Observation, np.ndarray]]:
    """What the expert sees and does on the table, some way into each episode."""
    world = make("table")
    pairs = []
    for seed in EPISODES:
        world.reset(seed)
        for _ in range(seed % 5):
            world.step(world.expert_action())  # type: ignore[attr-defined]
        action = world.expert_action()  # type: ignore[attr-defined]
        pairs.append((Observation(world.picture(), world.instruction), action))
    return pairs


def test_real_class_deep_and_narrow(policy: Policy) -> None:
    assert isinstance(policy.model, OpenVLAForActionPrediction)
    text = policy.model.config.text_config
    assert text.num_hidden_layers >= 16
    assert text.hidden_size <= 128
    assert (policy.horizon, policy.statistics["metaworld"].dims) == (2, 4)


def test_the_card_is_of_this_checkpoint(policy: Policy) -> None:
    card = json.loads((ROBOT.target / "card.json").read_text())
    assert card["parameters"] == sum(parameter.numel() for parameter in policy.model.parameters())
    assert set(card["held_out"]) == {"reach", "push", "drawer-open", "table"}
    assert all(scores["near"] > 0.85 for scores in card["held_out"].values())


def test_the_head_is_of_this_target_and_names_its_training(policy: Policy) -> None:
    assert ROBOT.head is not None
    head = load_for("eagle", ROBOT.head)
    head.check(policy.adapter)
    provenance = head.config.provenance
    assert provenance["acceptance"]["chain"][0] > 0.6
    assert provenance["step"] == provenance["settings"]["steps"]
    assert 0 < head.config.temperature < 1  # sure of the mode where the distribution is broad


def test_actions_follow_the_expert(policy: Policy, moments: list) -> None:
    """On the table, with goals it has never seen: within two millimetres on the mean."""
    actions = policy.act([seen for seen, _ in moments], method="plain")
    off = np.array(
        [
            abs(action.values[0] - expected)
            for action, (_, expected) in zip(actions, moments, strict=True)
        ]
    )
    assert off[:, :3].mean() < 0.002
    assert off[:, 3].max() < 0.05


def test_strict_is_plain_and_relaxed_is_quicker_and_near(policy: Policy, moments: list) -> None:
    for seen, _ in moments[:3]:
        plain, strict, relaxed = (
            policy.act([seen], method=name)[0] for name in ("plain", "strict", "relaxed")
        )
        assert np.array_equal(plain.ids, strict.ids)
        assert strict.stats.nfe < plain.stats.nfe
        assert relaxed.stats.nfe <= strict.stats.nfe
        assert np.abs(relaxed.values - plain.values)[:, :3].max() < 0.004
        assert np.array_equal(relaxed.ids[:, 3], plain.ids[:, 3])  # the gripper is exact


def test_it_reaches_the_ball(policy: Policy) -> None:
    """Closed loops, plain and relaxed, in the world that needs no simulator."""
    for method in ("plain", "relaxed"):
        act = partial(policy.act, method=method)
        rollouts = run_rollouts(act, "table", episodes=4, seed=EPISODES[0], batch=4)
        assert rollouts.success_rate == 1.0


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("metaworld") is None, reason="the robots extra is not installed"
)
def test_it_opens_the_drawer_in_mujoco(policy: Policy, tmp_path: Path) -> None:
    """One filmed episode in real physics, relaxed."""
    try:
        rollouts = run_rollouts(
            partial(policy.act, method="relaxed"), "drawer-open", episodes=1, seed=EPISODES[0],
            films=tmp_path,
        )  # fmt: skip
    except SoonerError as error:
        if "can't render" not in str(error):
            raise
        pytest.skip(str(error))
    [episode] = rollouts.episodes
    assert episode.success
    assert episode.film is not None
    assert episode.film.stat().st_size > 10_000


def test_the_sample_is_a_moment_of_reach(policy: Policy) -> None:
    assert ROBOT.sample is not None
    info = json.loads(ROBOT.sample.with_suffix(".json").read_text())
    picture = np.array(Image.open(ROBOT.sample).convert("RGB"))
    assert info["instruction"] == ROBOT.prompt
    [action] = policy.act([Observation(picture, ROBOT.prompt)], method="plain")
    assert np.abs(action.values[0] - info["action"]).max() < 0.003
