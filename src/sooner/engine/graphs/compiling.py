"""Forwards that `torch.compile` makes, a callable for each shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import torch

from ..attention.context import attending_to_blocks
from ..runner import ModelRunner


def compiled_for(
    function: Any, options: Mapping[str, Any], *shape: int | bool
) -> Callable[..., Any]:
    """Returns a function compiled for one shape, capacity of the cache included.

    It has code of its own: dynamo keeps what it compiled by code, 8 graphs at most, and runs what
    comes behind them as it is without a word.
    """
    code = _code(function.__code__, shape)
    made = FunctionType(code, function.__globals__)
    return torch.compile(made, dynamic=False, **options)


@cache
def _code(code: CodeType, shape: tuple[int | bool, ...]) -> CodeType:
    return code.replace(co_name="_".join([code.co_name, *(str(int(size)) for size in shape)]))


@contextmanager
def entering(runner: ModelRunner, is_compiled: bool) -> Iterator[None]:
    """What a compiled forward can't enter by itself."""
    if not is_compiled:
        yield
        return
    attending = attending_to_blocks(runner.adapter.text_config)
    with runner.rope_by_token(), attending, torch.inference_mode(False), torch.no_grad():
        yield
