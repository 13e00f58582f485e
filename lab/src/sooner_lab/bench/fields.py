"""Fields of a bench's settings that are lists: their text on the command line, and its checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sooner.checks import check_number, check_whole, option
from sooner.errors import SoonerError, unknown


def names(
    what: str, known: Sequence[str], always: str = "", default: Sequence[str] | None = None
) -> Any:
    """Return a field of names in the order of `known`.

    Args:
        what: a name's kind, for errors.
        known: what may be listed.
        always: a name that is in every list.
        default: of the field; by default all of `known`.
    """

    def parse(text: str) -> tuple[str, ...]:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        for name in parts:
            if name not in known:
                raise unknown(what, name, known)
        return tuple(name for name in known if name in parts or name == always)

    return option(tuple(known if default is None else default), metavar="A,B,...", parse=parse)


def texts(default: Sequence[str]) -> Any:
    """Return a field of any texts."""

    def parse(text: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())

    return option(tuple(default), metavar="A,B,...", parse=parse)


def numbers(
    flag: str, default: tuple[float, ...], kind: type = int, minimum: float = 1, maximum: float = 1
) -> Any:
    """Return a field of ascending numbers, each once.

    Args:
        flag: its option, for errors.
        default: its numbers.
        kind: `int` or `float`.
        minimum, maximum: of a number; a whole number has no maximum.
    """

    def parse(text: str) -> tuple[float, ...]:
        example = ",".join(map(str, default[:2]))
        try:
            values = sorted({kind(part) for part in text.split(",") if part.strip()})
        except ValueError as error:
            raise SoonerError(f"{flag} is '{text}'; give numbers such as {example}") from error
        if not values:
            raise SoonerError(f"{flag} is empty; give numbers such as {example}")
        for value in values:
            if kind is int:
                check_whole(flag, value, int(minimum))
            else:
                check_number(flag, value, minimum, maximum)
        return tuple(values)

    return option(default, metavar="N,N,...", parse=parse)
