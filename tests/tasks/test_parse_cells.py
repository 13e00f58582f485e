"""Crops along the raster of visual tokens: a region looks as it does on the page."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2VLImageProcessor

from sooner.tasks.parse.model_inputs import SLACK, Cells

PROCESSOR = Qwen2VLImageProcessor(
    patch_size=7, merge_size=2, size={"shortest_edge": 14 * 14 * 4, "longest_edge": 10**6}
)


def tokens(picture: np.ndarray) -> np.ndarray:
    """What each visual token sees, `[down, across, pixels]`."""
    made = PROCESSOR(images=[picture], return_tensors="pt")
    _, down, across = (int(side) for side in made["image_grid_thw"][0])
    return made["pixel_values"].numpy().reshape(down // 2, across // 2, -1)


@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.tuples(*[st.floats(0, 1)] * 4),
    st.integers(20, 300),
    st.integers(20, 300),
    st.integers(0, 40),
)
def test_crops_are_whole_cells_around_the_box(
    across: int, down: int, ends: tuple[float, ...], width: int, height: int, few: int
) -> None:
    side = 10
    size = (across * side, down * side)
    cells = Cells(side, size, few * side * side)
    places = np.arange(size[0] * size[1]).reshape(size[1], size[0])
    picture = np.stack([places % 251, places // 251 % 251, places // 251**2], -1).astype(np.uint8)
    x, y = sorted(ends[:2]), sorted(ends[2:])
    box = (x[0] * width, y[0] * height, x[1] * width, y[1] * height)
    crop = cells.crop(picture, box, (width, height))
    assert crop.shape[0] % side == crop.shape[1] % side == 0
    assert crop.shape[0] * crop.shape[1] >= few * side * side
    seen = (x[0] * size[0], y[0] * size[1], x[1] * size[0], y[1] * size[1])
    first = [int(value) for value in crop[0, 0]]
    at = first[0] + 251 * first[1] + 251**2 * first[2]
    top, left = divmod(at, size[0])
    assert left % side == top % side == 0
    slack = SLACK * side + 1e-6
    assert left <= seen[0] + slack
    assert top <= seen[1] + slack
    assert left + crop.shape[1] >= seen[2] - slack
    assert top + crop.shape[0] >= seen[3] - slack
    if not few:  # no cell that the box does not touch, but for a box without any area
        assert left > seen[0] - side - 1e-6
        assert left + crop.shape[1] < seen[2] + side + 1e-6 + (x[0] == x[1]) * side
        assert top > seen[1] - side - 1e-6
        assert top + crop.shape[0] < seen[3] + side + 1e-6 + (y[0] == y[1]) * side
