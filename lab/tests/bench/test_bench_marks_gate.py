"""The gate of the world of marks, on made-up texts."""

from __future__ import annotations

import numpy as np
import pytest

from sooner_lab.bench.marks.gate import calibrated, gate, share
from sooner_lab.bench.marks.settings import BLIND, GATE, ORACLE, RANDOM, WHOLE, Bound


def texts(rejected: float, seed: int, clips: int = 96, tokens: int = 149) -> list[list[bool]]:
    """Texts whose tokens are rejected with a probability. The same seed rejects nested tokens."""
    drawn = np.random.default_rng(seed).random((clips, tokens))
    return (drawn >= rejected).tolist()


def arms(oracle: float = 0.16, random: float = 0.22, blind: float = 0.25) -> dict:
    whole = texts(0.16, 0)
    return {
        WHOLE: whole, ORACLE: texts(oracle, 0), RANDOM: texts(random, 0), BLIND: texts(blind, 0)
    }  # fmt: skip


def test_shares_are_of_the_mean_run() -> None:
    whole = [[True, True, True, False] * 5] * 4  # M = 4
    half = [[True, False] * 10] * 4  # M = 2
    found = share(half, whole, 0)
    assert found["run_length"] == 2
    assert found["share"] == pytest.approx(50)
    assert found["interval"] == pytest.approx([50, 50])
    assert (found["rejections"], found["clips"]) == (40, 4)
    assert share(whole, whole, 0)["share"] == 100


def test_run_lengths_are_those_of_the_agreement() -> None:
    found = share(texts(0.2, 1), texts(0.2, 1), 0)
    assert found["run_length"] == pytest.approx(1 / (1 - found["agreement"]), rel=0.05)


def test_a_world_that_can_tell_may_judge() -> None:
    found = gate(arms(), 0)
    assert found["may_judge"]
    assert found["in_range"]
    assert [one["arm"] for one in found["arms"]] == [ORACLE, RANDOM, BLIND]
    assert all(one["met"] and one["sure"] for one in found["arms"])


@pytest.mark.parametrize(
    ("changed", "arm"),
    [
        ({"oracle": 0.175}, ORACLE),
        ({"random": 0.17}, RANDOM),
        ({"blind": 0.18}, BLIND),
        ({"blind": 0.35}, BLIND),
    ],
)
def test_each_bound_can_close_the_gate(changed: dict, arm: str) -> None:
    found = gate(arms(**changed), 0)
    assert not found["may_judge"]
    assert [one["arm"] for one in found["arms"] if not one["met"]] == [arm]


def test_few_clips_are_not_sure_enough() -> None:
    few = {name: told[:3] for name, told in arms().items()}
    few[BLIND] = texts(0.25, 5, clips=3)  # other tokens than the unpruned draft's
    found = gate(few, 0)
    assert not found["may_judge"]
    assert not all(one["sure"] for one in found["arms"])


def test_bounds_hold_at_their_edges() -> None:
    oracle, random, blind = GATE
    assert oracle.holds(98)
    assert oracle.holds(103)
    assert not oracle.holds(97.9)
    assert random.holds(85)
    assert not random.holds(85.1)
    assert blind.holds(55)
    assert blind.holds(75)
    assert not blind.holds(54.9)
    assert [one.wanted for one in GATE] == ["at least 98", "at most 85", "55 to 75"]
    assert Bound("a", 1, 2).wanted == "1 to 2"


def test_a_range_of_run_lengths_is_told_not_asked_for() -> None:
    found = gate({name: texts(0.02 * scale, 0) for name, scale in
                  ((WHOLE, 1), (ORACLE, 1), (RANDOM, 1.4), (BLIND, 1.5))}, 0)  # fmt: skip
    assert not found["in_range"]


def test_other_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="clip by clip"):
        share(texts(0.1, 0, clips=3), texts(0.1, 0, clips=4), 0)


def test_contrast_is_calibrated_on_the_blind_share_alone() -> None:
    assert calibrated({1.0: 40.0, 0.8: 62.0, 0.6: 70.0}, 65.0) == 0.8
    assert calibrated({1.0: 60.0, 0.8: 70.0}, 65.0) == 1.0
