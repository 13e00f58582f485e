"""Types that are decoded for words alone refuse a prompt that shows something."""

from __future__ import annotations

import pytest

import sooner
from zoo.laws import METHODS, ROWS
from zoo.species import Species, model_of
from zoo.zoo import DECODED


@pytest.mark.parametrize("species", [one for one in DECODED if one.unseen], ids=str)
def test_pictures_of_a_type_that_reads_words_are_refused_in_one_line(species: Species) -> None:
    model = model_of(species)
    for name in ("plain", "tree"):
        inputs = species.inputs(model, "image", ROWS, 0)
        with pytest.raises(sooner.SoonerError, match=species.unseen) as told:
            sooner.generate(model, inputs, METHODS[name](species), max_new_tokens=4)
        assert "\n" not in str(told.value)
