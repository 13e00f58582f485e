"""Meta-World in MuJoCo, where both are installed."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from sooner.errors import SoonerError
from sooner_lab.robots import METAWORLD

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("metaworld") is None, reason="the robots extra is not installed"
    ),
]


@pytest.fixture(scope="module")
def worlds() -> dict:
    from sooner_lab.robots.metaworld import MetaWorld

    try:
        made = {name: MetaWorld(name) for name in METAWORLD}
        for world in made.values():
            world.reset(0)
            world.picture()
    except SoonerError as error:
        pytest.skip(str(error))
    return made


@pytest.mark.parametrize("name", METAWORLD)
def test_the_expert_does_the_task(worlds: dict, name: str) -> None:
    world = worlds[name]
    for seed in (11, 12):
        world.reset(seed)
        while not (step := world.step(world.expert_action())).over:
            pass
        assert step.success


@pytest.mark.parametrize("name", METAWORLD)
def test_a_seed_is_an_episode_and_seeds_differ(worlds: dict, name: str) -> None:
    world = worlds[name]
    seen = []
    for seed in (3, 3, 4):
        world.reset(seed)
        seen.append(world.picture())
    assert np.array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])


def test_the_goal_is_drawn_and_lies_elsewhere_for_each_seed(worlds: dict) -> None:
    """The ball's red pixels are in the picture from the first one on."""
    world, places = worlds["reach"], []
    for seed in (5, 6, 7):
        world.reset(seed)
        above = world.picture().astype(int)[56:]
        red = (above[..., 0] > 200) & (above[..., 1] < 40) & (above[..., 2] < 40)
        assert red.sum() >= 3
        places.append(np.argwhere(red).mean(0))
    assert len({tuple(place) for place in places}) == 3
