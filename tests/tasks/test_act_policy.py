"""Policies act on several robots at once as on each alone, and tell what they did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner.tasks.act import Observation, Policy
from tiny_policy import ARM, BINS, DIMS, HORIZON, TABLE, WORDS, observations, policy


@pytest.fixture(scope="module")
def plain() -> Policy:
    return policy()


def literal(actor: Policy, seen: Observation) -> np.ndarray:
    """Greedy decoding by whole forwards of the model, one token after the other."""
    inputs = actor.processor([seen.image], [seen.instruction])
    ids = inputs["input_ids"]
    for _ in range(HORIZON * DIMS):
        with torch.inference_mode():
            logits = actor.model(ids, pixel_values=inputs["pixel_values"]).logits
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
    return ids[0, inputs["input_ids"].shape[1] :].numpy().reshape(HORIZON, DIMS)


def test_a_batch_acts_as_each_robot_alone(plain: Policy) -> None:
    seen = observations(3)
    for observation, action in zip(seen, plain.act(seen), strict=True):
        np.testing.assert_array_equal(action.ids, literal(plain, observation))
        np.testing.assert_array_equal(action.ids, plain.act([observation])[0].ids)


def test_an_action_is_unnormalised(plain: Policy) -> None:
    action = plain.act(observations(1))[0]
    assert action.values.shape == (HORIZON, DIMS)
    low, high = np.array(TABLE["q01"]), np.array(TABLE["q99"])
    centres = np.linspace(-1, 1, BINS)
    bins = np.clip(WORDS + BINS - 1 - action.ids, 0, BINS - 2)
    normed = (centres[bins] + centres[bins + 1]) / 2
    expected = np.where(TABLE["mask"], low + (normed + 1) / 2 * (high - low), normed)
    np.testing.assert_allclose(action.values, expected)
    assert (action.mode, action.method, action.unnorm_key) == ("exact", "plain", "table")
    assert action.names == ("dx", "dy", "dz", "gripper")
    assert action.deviation is None
    assert action.from_exact is None


def test_a_policy_may_have_a_separate_data_set() -> None:
    both = policy(table=TABLE, arm=ARM)
    arm_policy = Policy(both.model, both.processor, unnorm_key="arm")
    assert arm_policy.act(observations(1))[0].unnorm_key == "arm"
    with pytest.raises(SoonerError, match="unknown unnorm_key 'ram'"):
        Policy(both.model, both.processor, unnorm_key="ram")


def test_sampling_is_seeded_and_differs_from_the_best(plain: Policy) -> None:
    seen = observations(2)
    first, again = (plain.act(seen, temperature=2.0, seed=7) for _ in range(2))
    assert [action.ids.tolist() for action in first] == [action.ids.tolist() for action in again]
    best = [action.ids.tolist() for action in plain.act(seen)]
    assert best != [action.ids.tolist() for action in first]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"method": "strikt"}, "unknown method 'strikt' .did you mean 'strict'"),
        ({"method": "strict"}, "method 'strict' needs a draft head for 'tiny'"),
        ({"temperature": -1.0}, "temperature is -1;"),
        ({"temperature": 1.0, "compare": True}, "sampling does not have"),
    ],
)
def test_what_can_not_be_done_is_refused(
    plain: Policy, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(SoonerError, match=error):
        plain.act(observations(1), **options)


@pytest.mark.parametrize(
    ("allowance", "error"),
    [(-3, "tolerance is -3"), ((1,) * (DIMS + 2), f"{DIMS + 2} values, an action has {DIMS}")],
)
def test_an_allowance_fits_the_robot(allowance: Any, error: str) -> None:
    with pytest.raises(SoonerError, match=error):
        policy(allowance=allowance)


def test_relaxed_actions_tell_how_far_they_are_from_the_exact_ones() -> None:
    head_policy = policy(head=True, allowance=BINS)
    seen = observations(3)
    exact = head_policy.act(seen, method="plain")
    relaxed = head_policy.act(seen, method="relaxed", compare=True)
    assert any(
        (ours.ids != reference.ids).any() for ours, reference in zip(relaxed, exact, strict=True)
    )
    for ours, reference in zip(relaxed, exact, strict=True):
        assert ours.mode == "relaxed"
        assert ours.from_exact is not None
        np.testing.assert_allclose(
            ours.from_exact.max, np.abs(ours.values - reference.values).max(0), atol=1e-12
        )
        assert ours.deviation is not None
        assert ours.deviation.max[3] == 0  # the gripper is exact
        accepted = sum(action.deviation.count.sum() for action in relaxed)
    assert accepted == relaxed[0].stats.num_accepted_draft_tokens


def test_auto_runs_what_was_measured_to_be_quickest_for_each_robot() -> None:
    auto_policy = policy(head=True, table=TABLE, arm=ARM)
    table, arm = auto_policy.pace[4], auto_policy.pace[7]
    for _ in range(3):
        for pace in (table, arm):
            pace.add("plain", 2, 0.01)
        table.add("strict", 2, 0.02)
    mixed = [*observations(2, unnorm_key="table"), *observations(2, unnorm_key="arm")]
    assert [action.method for action in auto_policy.act(mixed)] == 2 * ["plain"] + 2 * ["strict"]
    for _ in range(15):
        table.add("strict", 2, 0.001)
    assert auto_policy.act(mixed[:2], method="auto")[0].method == "strict"
    assert set(auto_policy._built) == {("strict", 4), ("strict", 7)}  # each measures its own


def test_an_id_that_is_no_action_is_clipped_and_flagged() -> None:
    one = policy()
    with torch.no_grad():
        one.model.lm_head.weight[:] = 0  # the first id wins every tie
    action = one.act(observations(1))[0]
    assert action.ids.tolist() == [[0] * DIMS] * HORIZON
    assert action.clipped.all()
    top = (np.linspace(-1, 1, BINS)[-2] + 1) / 2  # the centre of the highest bin
    assert action.values[0, 3] == pytest.approx(top)
    assert action.as_dict()["clipped"] is True


def test_drafted_exactly_it_is_the_same_action() -> None:
    one = policy(head=True)
    seen = observations(3)
    exact = one.act(seen, method="plain")
    for ours, wanted in zip(one.act(seen, method="strict"), exact, strict=True):
        np.testing.assert_array_equal(ours.ids, wanted.ids)
        assert (ours.mode, ours.method) == ("exact", "strict")
