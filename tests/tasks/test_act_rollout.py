"""Closed loops in the world without a simulator, by a policy that really looks at its picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sooner.tasks.act.observation import Observation
from sooner.tasks.act.rollout import Episode, Rollouts, run_rollouts
from sooner_lab.robots.table import HALF, PIXELS


@dataclass
class Answer:
    values: np.ndarray


def centre(part: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Mean (row, column) of the pixels close to a colour."""
    near = np.abs(part.astype(int) - colour).sum(-1) < 90
    return np.argwhere(near).mean(0) if near.any() else np.full(2, np.nan)


def look(seen: Observation) -> np.ndarray:
    """Metres from the hand to the ball, `[3]`, read off the two views."""
    front, above = seen.image[:HALF], seen.image[HALF:]
    hand, ball = (0, 220, 230), (30, 60, 230)
    down, aside = centre(front, ball) - centre(front, hand)
    far, _ = centre(above, ball) - centre(above, hand)
    return np.nan_to_num([-aside / PIXELS, far / (PIXELS / 2), -down / (0.9 * PIXELS)])


class Looker:
    """Goes where it sees the ball, two steps at a time."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, seen: list[Observation]) -> list[Answer]:
        self.batches.append(len(seen))
        moves = [
            np.append(np.clip(10 * look(observation), -1, 1) * 0.01, 0.0) for observation in seen
        ]
        return [Answer(np.stack([move, move])) for move in moves]


def stay(seen: list[Observation]) -> list[Answer]:
    return [Answer(np.zeros((1, 4))) for _ in seen]


def test_a_looking_policy_succeeds_and_a_still_policy_does_not() -> None:
    rollouts = run_rollouts(Looker(), "table", episodes=6, batch=3)
    assert rollouts.success_rate == 1.0
    assert sorted(episode.seed for episode in rollouts.episodes) == list(range(6))
    assert all(
        0 < episode.steps < 100 and episode.calls == -(-episode.steps // 2)
        for episode in rollouts.episodes
    )
    still = run_rollouts(stay, "table", episodes=2)
    assert still.success_rate == 0.0
    assert [episode.steps for episode in still.episodes] == [100, 100]
    assert still.interval[0] == 0.0


def test_episodes_run_side_by_side_and_lanes_are_used_again() -> None:
    act = Looker()
    run_rollouts(act, "table", episodes=5, batch=2)
    assert max(act.batches) == 2
    assert act.batches[-1] <= 2


def test_actions_a_second_count_each_call_once_and_no_comparison() -> None:
    stats = [SimpleNamespace(num_spec_steps=1, num_accepted_draft_tokens=3) for _ in range(2)]
    rest = dict.fromkeys(("mode", "method", "names", "deviation", "from_exact"))
    rest["clipped"] = np.zeros(4, bool)
    calls = [SimpleNamespace(stats=stats[0], seconds=2.0, **rest)] * 2
    calls.append(SimpleNamespace(stats=stats[1], seconds=1.0, **rest))
    rollouts = Rollouts([Episode("table", seed, True, 6, 3) for seed in range(2)])
    figures = rollouts.as_dict(calls)
    assert (figures["actions"], figures["calls"], figures["actions_per_second"]) == (12, 2, 4.0)


def test_an_interrupted_film_leaves_nothing(tmp_path: Path) -> None:
    def fail(seen: list[Observation]) -> list[Answer]:
        raise RuntimeError("the policy broke")

    with pytest.raises(RuntimeError, match="broke"):
        run_rollouts(fail, "table", episodes=1, films=tmp_path)
    assert not list(tmp_path.iterdir())
