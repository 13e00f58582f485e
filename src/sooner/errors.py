"""Errors that name the thing, the value and the way out, in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SoonerError(ValueError):
    """Base of every error that `sooner` raises on purpose; the text is one line for a person."""


class UnsupportedError(SoonerError):
    """Something asked for can't be honoured, and is refused by name instead of being ignored."""


class BadLogitsError(SoonerError):
    """The model returned NaN, so no next token can be chosen."""


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the nearest known name, or an empty string."""
    nearest = difflib.get_close_matches(value, list(known), n=1)
    return f" (did you mean '{nearest[0]}'?)" if nearest else ""


def unknown(kind: str, value: str, known: Iterable[str]) -> SoonerError:
    """Build the error for a name that is not one of `known`."""
    names = sorted(known)
    return SoonerError(
        f"unknown {kind} '{value}'{did_you_mean(value, names)}; known: {', '.join(names)}"
    )
