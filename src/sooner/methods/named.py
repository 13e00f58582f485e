"""Methods by instance, class or name."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from ..errors import SoonerError, unknown
from ..registry import choices, methods
from .autoregressive import Autoregressive
from .base import Method


def as_method(given: Any) -> Method:
    """Returns a method from an instance, its class, or its name on the command line; plain for
    `None`.

    Raises:
        SoonerError: an unknown name, something else than a method, or one that needs a draft, a
            head or the like; says how to make it.
    """
    if given is None:
        return Autoregressive()
    if isinstance(given, Method):
        return given
    if isinstance(given, str):
        if given not in methods():
            raise unknown("method", given, choices())
        return _without_arguments(methods()[given].load(), f"method '{given}'")
    if isinstance(given, type) and issubclass(given, Method):
        return _without_arguments(given, f"the class {given.__name__}")
    raise SoonerError(
        f"method is a {type(given).__name__}; pass a method such as sooner.PromptLookup(), or its "
        f"name: {', '.join(choices())}"
    )


def _without_arguments(kind: type[Method], name: str) -> Method:
    needed = [
        one.name
        for one in fields(kind)
        if one.default is MISSING and one.default_factory is MISSING and one.init
    ]
    if needed:
        arguments = ", ".join(f"{one}=..." for one in needed)
        raise SoonerError(
            f"{name} needs {', '.join(needed)}; pass sooner.{kind.__name__}({arguments})"
        )
    return kind()
