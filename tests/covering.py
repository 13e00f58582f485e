"""Few settings of many: covering arrays, in which every allowed pair of values of two factors
appears, and diagonals, in which every value does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

Setting = dict[str, Any]
Allowed = Callable[[Mapping[str, Any]], bool]
"""Tells whether values go together; it is asked about settings that lack factors, too."""


def thinned(values: Iterable[Any], core: Container[Any]) -> list[Any]:
    """Values for `parametrize`: those outside of `core` are the merge lane's."""
    return [
        value if value in core else pytest.param(value, marks=pytest.mark.slow) for value in values
    ]


def diagonal(*factors: Sequence[Any]) -> list[Any]:
    """All settings for `parametrize`: the core lane has each value, the merge lane the others."""
    numbers = [range(len(values)) for values in factors]
    core = {
        tuple(step % len(values) for values in factors) for step in range(max(map(len, factors)))
    }
    return [
        pytest.param(
            *(values[number] for values, number in zip(factors, setting, strict=True)),
            marks=[pytest.mark.slow] * (setting not in core),
        )
        for setting in itertools.product(*numbers)
    ]


def pairwise(factors: Mapping[str, Sequence[Any]], allowed: Allowed) -> list[Setting]:
    """Settings that cover every pair which some allowed setting holds, in an order that is fixed.

    Each setting begins with the first pair that none has covered yet. Its other factors take the
    value which covers most further pairs, and among equals the one that was taken least.
    """
    names = list(factors)
    open_pairs = dict.fromkeys(
        pair for pair in _pairs(factors) if _completed(dict(pair), names, factors, allowed)
    )
    counts = {name: [0] * len(factors[name]) for name in names}
    settings: list[Setting] = []
    while open_pairs:
        setting = dict(next(iter(open_pairs)))
        for name in sorted((n for n in names if n not in setting), key=lambda n: -len(factors[n])):

            def worth(number: int, name: str = name, setting: Setting = setting) -> tuple[int, int]:
                value = factors[name][number]
                new = sum(
                    _pair(names, name, value, *item) in open_pairs for item in setting.items()
                )
                return new, -counts[name][number]

            for number in sorted(range(len(factors[name])), key=worth, reverse=True):
                trial = {**setting, name: factors[name][number]}
                if _completed(trial, names, factors, allowed):
                    setting = trial
                    break
        for name, value in setting.items():
            counts[name][list(factors[name]).index(value)] += 1
        for first, other in itertools.combinations(setting.items(), 2):
            open_pairs.pop(_pair(names, *first, *other), None)
        settings.append({name: setting[name] for name in names})
    return settings


def _pairs(factors: Mapping[str, Sequence[Any]]) -> Iterator[tuple[tuple[str, Any], ...]]:
    for first, other in itertools.combinations(factors, 2):
        for value, another in itertools.product(factors[first], factors[other]):
            yield (first, value), (other, another)


def _pair(
    names: Sequence[str], first: str, value: Any, other: str, another: Any
) -> tuple[tuple[str, Any], ...]:
    """Two values in the order of their factors."""
    both = (first, value), (other, another)
    return both if names.index(first) < names.index(other) else (both[1], both[0])


def _completed(
    setting: Setting, names: Sequence[str], factors: Mapping[str, Sequence[Any]], allowed: Allowed
) -> bool:
    """Whether some allowed setting of all factors holds these values."""
    if not allowed(setting):
        return False
    left = next((name for name in names if name not in setting), None)
    return left is None or any(
        _completed({**setting, left: value}, names, factors, allowed) for value in factors[left]
    )
