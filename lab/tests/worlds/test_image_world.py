"""The picture world: a pure function of its seeds, and captions that tell the truth."""

from __future__ import annotations

import numpy as np
import pytest

from sooner_lab.worlds.image import paint, world
from sooner_lab.worlds.image.world import Attributes, Picture


def picture(caption_of: Attributes) -> Picture:
    return Picture(world.describe(caption_of), caption_of)


TWO = Attributes(("square", "square"), ("red", "blue"), "left of", "green")


def test_pictures_follow_from_seed_and_index() -> None:
    first, pixels = world.drawn(7, 3)
    again, same = world.drawn(7, 3)
    assert first == again == world.drawn_picture(7, 3)
    assert pixels.shape == (64, 64, 3)
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, same)
    assert not np.array_equal(pixels, world.drawn(8, 3)[1])
    assert not np.array_equal(pixels, world.drawn(7, 4)[1])


def test_prompts_are_never_trained_on() -> None:
    prompts = world.prompts(50, 9)
    assert prompts == world.prompts(50, 9)
    assert prompts != world.prompts(50, 10)
    assert all(world.is_test_caption(prompt.caption) for prompt in prompts)
    rng = np.random.default_rng(0)
    assert not any(world.is_test_caption(world.sample(rng).caption) for _ in range(300))


def test_captions_and_attributes_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        example = world.sample(rng)
        attributes = example.attributes
        assert example.caption == world.describe(attributes)
        assert (
            len(attributes.forms)
            == len(attributes.colours)
            == (1 if attributes.relation is None else 2)
        )
        assert attributes.ground not in attributes.colours


@pytest.mark.parametrize("relation", world.RELATIONS)
def test_shapes_lie_as_described(relation: str) -> None:
    attributes = Attributes(("square", "square"), ("red", "blue"), relation, "green")
    red, blue = [], []
    for seed in range(5):
        pixels = world.draw(picture(attributes), np.random.default_rng(seed)).astype(int)
        red.append(np.argwhere(pixels[..., 0] > pixels[..., 1:].max(-1) + 60).mean(0))
        blue.append(np.argwhere(pixels[..., 2] > pixels[..., :2].max(-1) + 60).mean(0))
    apart = np.array(red) - np.array(blue)  # [seeds, (down, right)]
    axis = 1 if relation in ("left of", "right of") else 0
    sign = -1 if relation in ("left of", "above") else 1
    assert (sign * apart[:, axis] > 15).all()


def test_two_ways_of_saying_have_the_same_canonical_form() -> None:
    other = Attributes(("square", "square"), ("blue", "red"), "right of", "green")
    assert other.canonical() == TWO == TWO.canonical()
    alone = Attributes(("cross",), ("red",), None, "blue")
    assert alone.canonical() == alone


@pytest.mark.parametrize("form", world.FORMS)
def test_forms_differ_and_lie_within_their_radius(form: str) -> None:
    inside = paint.distance(form, (32.0, 32.0), 14.0) < 0
    assert 150 < inside.sum() < 650
    assert not inside[:14].any()
    shapes = [paint.distance(name, (32.0, 32.0), 14.0) < 0 for name in world.FORMS if name != form]
    assert all((inside != other).sum() > 60 for other in shapes)
