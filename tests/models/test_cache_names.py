"""The cache is `past_key_values` or `cache`, by the release of transformers and by the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from sooner.decoding.cache import (
    CACHE,
    CACHE_NAMES,
    cache_argument,
    given_cache,
    takes_either_name,
)


class Old(nn.Module):
    def forward(self, hidden: Any, past_key_values: Any = None) -> Any:
        return past_key_values


class New(nn.Module):
    @takes_either_name
    def forward(self, hidden: Any, cache: Any = None) -> Any:
        return cache


class Silent(nn.Module):
    def forward(self, hidden: Any, **kwargs: Any) -> Any:
        return kwargs


def test_a_forward_is_asked_for_the_name_of_its_cache() -> None:
    assert cache_argument(Old().forward) == "past_key_values"
    assert cache_argument(New().forward) == "cache"
    assert cache_argument(Silent().forward) == CACHE
    assert CACHE in CACHE_NAMES


@pytest.mark.parametrize("name", CACHE_NAMES)
def test_either_name_is_understood(name: str) -> None:
    cache = object()
    assert given_cache({name: cache}) is cache
    assert New()(torch.zeros(1), **{name: cache}) is cache
    assert given_cache({}) is None
