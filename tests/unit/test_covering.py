"""The generator of covering arrays against the full product."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from covering import pairwise

SIZES = st.lists(st.integers(1, 4), min_size=2, max_size=4)
FORBIDDEN = st.lists(st.tuples(*[st.integers(0, 3)] * 4), max_size=6)


@given(SIZES, FORBIDDEN)
def test_every_pair_that_is_possible_appears_and_no_setting_is_forbidden(
    sizes: list[int], forbidden: list[tuple[int, ...]]
) -> None:
    factors = {f"factor {place}": range(size) for place, size in enumerate(sizes)}
    names = list(factors)

    def allowed(setting: Mapping[str, Any]) -> bool:
        """Two factors exclude each other at some values."""
        for first, value, other, another in forbidden:
            pair = (f"factor {first}", value), (f"factor {other}", another)
            if first != other and all(setting.get(name) == number for name, number in pair):
                return False
        return True

    whole = [
        setting
        for values in itertools.product(*factors.values())
        if allowed(setting := dict(zip(names, values, strict=True)))
    ]
    chosen = pairwise(factors, allowed)
    for pair in itertools.combinations(names, 2):
        possible = {tuple(setting[name] for name in pair) for setting in whole}
        assert {tuple(setting[name] for name in pair) for setting in chosen} == possible
    assert all(setting in whole for setting in chosen)
    assert len({tuple(setting.values()) for setting in chosen}) == len(chosen)


def test_the_array_is_small_and_the_same_each_time() -> None:
    factors = {name: range(4) for name in "abcdef"}
    chosen = pairwise(factors, lambda setting: True)
    assert chosen == pairwise(factors, lambda setting: True)
    assert len(chosen) <= 30, "of 4,096 settings; 16 is the least that four by four need"
