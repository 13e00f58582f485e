"""The motion world: pure functions, constant velocities, bounces, real files."""

from __future__ import annotations

import numpy as np
import pytest

from sooner_lab.worlds.motion import world


def test_a_clip_is_a_pure_function_of_seed_and_index() -> None:
    (example, first), (two, second) = world.film(3, 14), world.film(3, 14)
    assert example == two == world.sample(np.random.default_rng((3, 14)))
    assert first.dtype == np.uint8
    assert first.shape == (world.FRAMES, world.HEIGHT, world.WIDTH, 3)
    assert (first == second).all()
    assert world.film(3, 15, [0])[0] != example
    assert world.film(4, 14, [0])[0] != example


@pytest.mark.parametrize("velocity", [(1, 0), (-1, 1), (0, -1), (1, 1), (-1, -1)])
@pytest.mark.parametrize("start", [(6, 6), (42, 34), (24, 20), (6, 34)])
def test_shapes_keep_their_speed_and_bounce(
    start: tuple[int, int], velocity: tuple[int, int]
) -> None:
    mover = world.Mover("circle", "red", start, velocity)
    for frame in range(150):
        here, there = mover.at(frame), mover.at(frame + 1)
        for axis, side in ((0, world.WIDTH), (1, world.HEIGHT)):
            assert world.RADIUS <= here[axis] <= side - world.RADIUS
            assert abs(there[axis] - here[axis]) == abs(velocity[axis])


def test_shapes_are_drawn_where_they_are() -> None:
    mover = world.Mover("square", "yellow", (10, 12), (1, 1))
    clip = world.MotionClip("slate", 5, (mover,))
    frames = world.render(clip, None)
    for frame in (0, 7, 20, 32):
        like = np.abs(frames[frame].astype(int) - world.COLOURS["yellow"]).sum(-1) < 30
        ys, xs = np.nonzero(like)
        assert (xs.mean() + 0.5, ys.mean() + 0.5) == pytest.approx(mover.at(frame), abs=0.1)


def test_kinds_colours_and_fronts_differ() -> None:
    areas = {}
    for kind in world.SHAPES:
        mover = world.Mover(kind, "red", (20, 20), (0, 1))
        back = world.Mover("square", "blue", (20, 20), (0, 1))
        frame = world.render(world.MotionClip("sand", 0, (back, mover)), None, [0])[0].astype(int)
        areas[kind] = int((np.abs(frame - world.COLOURS["red"]).sum(-1) < 20).sum())
        assert areas[kind] > 50  # the later shape is in front
    assert len(set(areas.values())) == 3


def test_the_wall_rests_and_the_grain_does_not() -> None:
    clip = world.MotionClip("plum", 8, ())
    still = world.render(clip, None)
    assert (still == still[0]).all()
    noisy = world.render(clip, np.random.default_rng(0)).astype(float)
    assert 0.5 < (noisy - still).std() < 1.5
    assert still[0].astype(float).std(axis=(0, 1)).min() > 3


def test_groups_of_four_frames_see_whole_steps() -> None:
    """Whatever the bounces, a shape is on the lattice again after every fourth frame."""
    for index in range(50):
        for mover in world.sample(np.random.default_rng((9, index))).movers:
            places = {at % world.LATTICE for frame in range(0, 33, 4) for at in mover.at(frame)}
            assert places == {world.RADIUS % world.LATTICE}
            for begin in range(0, 32, 4):
                path = np.array([mover.at(begin + frame) for frame in range(5)])
                assert len(np.unique(np.diff(path, axis=0), axis=0)) == 1
