"""Pictures of patterns, of tables and of attention."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sooner.errors import SoonerError
from sooner.sparse.attention import States
from sooner.sparse.modality import PromptLayout
from sooner.sparse.search.pictures import Map, attention_figure, save

LAYOUT = PromptLayout.spans(("text", 8), ("video", 48), ("text", 16), frame=12)


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
