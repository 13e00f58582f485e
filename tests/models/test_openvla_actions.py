"""Bins, statistics and their arithmetic, against the published formulas written out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sooner.errors import SoonerError
from sooner.models.checkpoint import read_object
from sooner.models.openvla.statistics import (
    ActionStatistics,
    ActionTokens,
    decode_actions,
)

VOCAB = 32_000
TOKENS = ActionTokens(VOCAB)
Q01, Q99, MASK = [-0.02, -0.03, -0.5, 0.0], [0.03, 0.01, 1.5, 1.0], [True, True, True, False]
ACTION = {"q01": Q01, "q99": Q99, "mask": MASK}
STATS = {"bridge_orig": {"action": ACTION}, "fractal20220817_data": {"action": ACTION}}


def published_id(value: float) -> int:
    """`vocab_size - digitize(clip(a, -1, 1), linspace(-1, 1, 256))`."""
    edges = [-1 + 2 * i / 255 for i in range(256)]
    edges[-1] = 1.0
    grid = np.linspace(-1, 1, 256)
    clipped = min(max(value, -1.0), 1.0)
    at_or_below = sum(edge <= clipped for edge in grid.tolist())
    assert np.allclose(grid, edges, atol=1e-15)
    return VOCAB - at_or_below


def published_value(token: int) -> float:
    """The centre of bin `clip(vocab_size - id - 1, 0, 254)`."""
    grid = np.linspace(-1, 1, 256).tolist()
    place = min(max(VOCAB - token - 1, 0), 254)
    return (grid[place] + grid[place + 1]) / 2


def test_ids_around_every_edge() -> None:
    grid = np.linspace(-1, 1, 256)
    values = [-7.0, 7.0, 0.0, -0.0]
    for edge in grid.tolist():
        values += [edge, np.nextafter(edge, -9), np.nextafter(edge, 9), edge + 1e-3, edge - 1e-3]
    expected = [published_id(value) for value in values]
    assert TOKENS.encode(np.array(values)).tolist() == expected
    assert set(expected) == set(range(VOCAB - 256, VOCAB))


def literal_unnormalised(normed: list[float]) -> list[float]:
    return [
        0.5 * (x + 1) * (q99 - q01) + q01 if mask else x
        for x, q01, q99, mask in zip(normed, Q01, Q99, MASK, strict=True)
    ]


def test_ids_become_physical_actions_as_published() -> None:
    generator = np.random.default_rng(3)
    ids = generator.integers(VOCAB - 256, VOCAB, (3, 8))
    actions = decode_actions(ids, TOKENS, ActionStatistics.choose(STATS, "bridge_orig"))
    assert actions.shape == (3, 2, 4)
    for row in range(3):
        for step in range(2):
            token_ids = ids[row, 4 * step : 4 * step + 4].tolist()
            expected = literal_unnormalised([published_value(token) for token in token_ids])
            assert actions[row, step].tolist() == expected


def test_statistics_are_read_from_a_checkpoint(tmp_path: Path) -> None:
    named = {**ACTION, "names": ["dx", "dy", "dz", "gripper"]}
    file = tmp_path / "dataset_statistics.json"
    file.write_text(json.dumps({"mine": {"action": named}}))
    statistics = read_object(file)
    assert statistics == {"mine": {"action": named}}
    assert ActionStatistics.choose(statistics).names == ("dx", "dy", "dz", "gripper")
    assert read_object(tmp_path / "elsewhere.json") is None
    file.write_text("[1]")
    with pytest.raises(SoonerError, match="holds no object"):
        read_object(file)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"action": {"q99": Q99}}, "'mine' have no q01"),
        ({"action": {"q01": Q01, "q99": None}}, "'mine' have no q99"),
        ({"proprio": ACTION}, "'mine' say nothing of an action"),
        ([1, 2], "'mine' say nothing of an action"),
        ({"action": ACTION | {"q01": Q01[:3]}}, "'mine' have 3 q01, 4 q99, 4 mask"),
        ({"action": ACTION | {"names": ["x"]}}, "4 mask, 1 names"),
        ({"action": ACTION | {"q99": [0, 1, float("nan"), 2]}}, "q99 .* finite numbers"),
        ({"action": ACTION | {"q01": ["a", 1, 2, 3]}}, "q01 .* finite numbers"),
        ({"action": {"q01": [], "q99": []}}, "q01 .* finite numbers"),
        ({"action": ACTION | {"mask": [1, 1, 1, 0]}}, "mask .* true and false"),
    ],
)
def test_broken_statistics_are_refused(data: Any, message: str) -> None:
    with pytest.raises(SoonerError, match=message) as caught:
        ActionStatistics.read("mine", data)
    assert "\n" not in str(caught.value)


BRIDGE = ActionStatistics.choose(STATS, "bridge_orig")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ActionStatistics.choose(STATS, "bridge_oirg"),
         r"unknown unnorm_key 'bridge_oirg' \(did you mean 'bridge_orig'\?\); known: bridge"),
        (lambda: ActionStatistics.choose(STATS),
         "knows 2 data sets; give an unnorm_key of bridge_orig, fractal20220817_data"),
        (lambda: ActionStatistics.choose(None), "no statistics of its actions"),
        (lambda: BRIDGE.unnormalise(np.zeros((2, 7))),
         r"shape \[2, 7\] do not fit 'bridge_orig'.* 4 dim"),
        (lambda: decode_actions(np.zeros((2, 6), int), TOKENS, BRIDGE),
         "no whole actions of 4 dimensions"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(SoonerError, match=message):
        call()
