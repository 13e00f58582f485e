"""The world without a simulator."""

from __future__ import annotations

import numpy as np
import pytest

from sooner.errors import SoonerError
from sooner.robots import make
from sooner_lab.robots.table import HALF, HIGH, LOW, NEAR, WIDTH, TableEnvironment, project


@pytest.mark.parametrize("seed", range(5))
def test_the_expert_reaches_the_ball(seed: int) -> None:
    world = TableEnvironment()
    world.reset(seed)
    while not (step := world.step(world.expert_action())).over:
        pass
    assert step.success
    assert np.linalg.norm(world.hand - world.goal) <= NEAR


def test_a_seed_is_an_episode() -> None:
    worlds = [TableEnvironment(), TableEnvironment()]
    for world, seed in zip(worlds, (4, 4), strict=True):
        world.reset(seed)
    assert np.array_equal(worlds[0].picture(), worlds[1].picture())
    worlds[1].reset(5)
    assert not np.array_equal(worlds[0].picture(), worlds[1].picture())


def test_actions_are_clipped_and_the_hand_stays_in_its_box() -> None:
    world = TableEnvironment()
    world.reset(0)
    before = world.hand
    world.step(np.array([9.0, -9.0, 0.0, 0.0]))
    assert np.allclose(world.hand - before, [0.01, -0.01, 0.0])
    for _ in range(200):
        world.step(np.array([1.0, 1.0, 1.0, 0.0]))
    assert np.allclose(world.hand, HIGH)
    assert (LOW < HIGH).all()


def test_the_picture_shows_the_hand_where_it_is() -> None:
    """Cyan pixels of each half lie around the place that `project` names."""
    world = TableEnvironment()
    world.reset(3)
    world.goal = np.array([0.2, 0.9, 0.3])  # out of the way
    picture = world.picture().astype(int)
    assert picture.shape == (2 * HALF, WIDTH, 3)
    for half in range(2):
        part = picture[half * HALF : (half + 1) * HALF]
        cyan = (part[..., 1] > 180) & (part[..., 2] > 200) & (part[..., 0] < 80)
        rows, columns = np.nonzero(cyan)
        [place] = project(world.hand[None], half)
        assert np.abs([rows.mean(), columns.mean()] - place).max() < 1


def test_unknown_environment_is_named() -> None:
    with pytest.raises(SoonerError, match=r"reach"):
        make("reech")
    with pytest.raises(SoonerError, match=r"libero-goal/3"):
        make("libero-goal")
