"""Methods by instance, class or name."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from ..errors import SoonerError, unknown
from ..registry import choices, methods
from .autoregressive import Autoregressive
from .base import Method


def as_method(value: Any) -> Method:
    """Returns a method from an instance, its class, or its name on the command line; plain for
    `None`.

    Raises:
        SoonerError: an unknown name, something else than a method, or one that needs a draft, a
            head or the like; says how to make it.
    """
    if value is None:
        return Autoregressive()
    if isinstance(value, Method):
        return value
    if isinstance(value, str):
        if value not in methods():
            raise unknown("method", value, choices())
        return _without_arguments(methods()[value].load(), f"method '{value}'")
    if isinstance(value, type) and issubclass(value, Method):
        return _without_arguments(value, f"the class {value.__name__}")
    raise SoonerError(
        f"method is a {type(value).__name__}; pass a method such as sooner.PromptLookup(), or its "
        f"name: {', '.join(choices())}"
    )


def _without_arguments(kind: type[Method], name: str) -> Method:
    needed = [
        item.name
        for item in fields(kind)
        if item.default is MISSING and item.default_factory is MISSING and item.init
    ]
    if needed:
        arguments = ", ".join(f"{item}=..." for item in needed)
        raise SoonerError(
            f"{name} needs {', '.join(needed)}; pass sooner.{kind.__name__}({arguments})"
        )
    return kind()
