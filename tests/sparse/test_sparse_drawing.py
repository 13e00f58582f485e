"""Pictures of patterns, of tables and of attention."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sooner.errors import SoonerError
from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.patterns import (
    VerticalSlash,
)
from sooner.sparse.patterns.drawing import tile
from sooner.sparse.search.pictures import Map, attention_figure, save

LAYOUT = PromptLayout.spans(("text", 8), ("video", 48), ("text", 16), frame=12)


def test_a_pattern_draws_the_real_mask_of_states() -> None:
    states = torch.randn(2, len(LAYOUT), 8, generator=torch.Generator().manual_seed(0))
    pattern = VerticalSlash(2, 3)
    axes = pattern.draw(LAYOUT, queries=states[0], keys=states[1])
    expected = tile(pattern.mask(LAYOUT, *states), pattern.name, LAYOUT)
    assert torch.equal(torch.as_tensor(axes.images[0].get_array().data), expected)


@pytest.mark.parametrize("name", ["a.jpeg", "none/a.png"])
def test_pictures_that_can_not_be_written_are_refused_before_they_are_drawn(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(SoonerError, match=r"\.png or \.svg|does not exist"):
        save(lambda: pytest.fail("drawn"), tmp_path / name)


def test_a_map_finds_the_grid_and_is_drawn_in_four_orders() -> None:
    # Every key of a class is alike, so attention is a grid of stride 12.
    place = torch.arange(len(LAYOUT)) % 12
    rows = torch.nn.functional.one_hot(place, 12).float()[None] * 3
    drawn = Map.of(States(rows, rows, rows, 1.0), LAYOUT, 0)
    assert drawn.grid[0] == 12
    torch.testing.assert_close(drawn.weights.sum(1), torch.ones(len(LAYOUT)))
    figure = attention_figure(drawn, "a head")
    assert len([axis for axis in figure.axes if axis.images]) == 4
