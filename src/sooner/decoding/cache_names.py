"""The name by which models take and return their cache.

`cache` from transformers 5.24 on; `past_key_values` before, and in remote code written for that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from transformers.modeling_outputs import BaseModelOutputWithPast

OLD, NEW = "past_key_values", "cache"
CACHE_NAMES = (NEW, OLD)
CACHE = NEW if NEW in {field.name for field in fields(BaseModelOutputWithPast)} else OLD
"""The one of the transformers that is installed, in its outputs and in what `generate` hands on."""

P = ParamSpec("P")
R = TypeVar("R")


def cache_argument(module: Any) -> str:
    """The name of the argument by which a module's forward takes its cache.

    That of the installed transformers where the forward names neither.
    """
    parameters = inspect.signature(module.forward).parameters
    return next((name for name in CACHE_NAMES if name in parameters), CACHE)


def given_cache(arguments: Mapping[str, Any]) -> Any:
    """The cache among a forward's keyword arguments, under either name; `None` without one."""
    return arguments.get(NEW, arguments.get(OLD))


def takes_either_name(forward: Callable[P, R]) -> Callable[P, R]:
    """A forward with an argument `cache` that is given it as `past_key_values`, too."""

    @wraps(forward)
    def renamed(*args: P.args, **kwargs: P.kwargs) -> R:
        if OLD in kwargs:
            kwargs[NEW] = kwargs.pop(OLD)
        return forward(*args, **kwargs)

    return renamed
