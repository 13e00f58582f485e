"""Every miniature's recipes as plain data, and back."""

from __future__ import annotations

from typing import Any

import pytest

from sooner.errors import SoonerError
from sooner_lab.cli.train import find_recipe
from sooner_lab.worlds import WORLDS
from sooner_lab.worlds.recipes import from_plain, plain

RECIPES = [
    (name, part, config) for name in WORLDS for part, config in find_recipe(name).RECIPES.items()
]


@pytest.mark.parametrize(("name", "part", "config"), RECIPES)
def test_a_recipe_survives_being_written_down(name: str, part: str, config: Any) -> None:
    told = plain(config)
    again = from_plain(type(config), told)
    assert again == config
    assert plain(again) == told
    stages = getattr(again, "stages", ())  # of all but a draft head's
    assert all(isinstance(stage, type(config.stages[0])) for stage in stages)


@pytest.mark.parametrize(("name", "part", "config"), RECIPES)
def test_unknown_options_are_named_at_every_depth(name: str, part: str, config: Any) -> None:
    told = plain(config)
    with pytest.raises(SoonerError, match="did you mean 'seed'"):
        from_plain(type(config), {**told, "sede": 1})
    if "stages" not in told:  # a draft head's
        return
    with pytest.raises(SoonerError, match="did you mean 'steps'"):
        from_plain(type(config), {**told, "stages": [{**told["stages"][0], "step": 2}]})
