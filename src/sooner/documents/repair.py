"""JSON objects out of text that a model broke off, or escaped badly."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

ESCAPE = re.compile(r'\\(u[0-9a-fA-F]{4}|["\\/bfnrt])?')
"""An escape that JSON knows, or a backslash that is none."""

COMMAND = re.compile(
    r"\\(?:\\|[bfrt](?=[a-zA-Z])|n(?=abla|eq|u\b|ot|i\b|earrow|warrow|leq|geq|mid))?"
)
"""A backslash that begins a command of LaTeX where none are escaped, such as that of `\\frac`."""

OPEN_END = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
"""An escape that was cut off."""


def repaired(part: str, texts: Sequence[str] = ("text",)) -> dict[str, Any] | None:
    """The object that `part` begins with, whatever follows, or `None` if nothing is left of it.

    An object that was cut off keeps its finished members, and of an unfinished text what there is.

    Args:
        part: begins with a brace.
        texts: members of which a part is better than nothing.
    """
    for text in (part, _escaped(part)):
        for candidate in _candidates(text, texts):
            try:
                found = json.loads(candidate, strict=False)
            except ValueError:
                continue
            if isinstance(found, dict) and found:
                return found
    return None


def _escaped(part: str) -> str:
    """Backslashes that JSON does not know made known, and LaTeX's commands with them."""

    def known(match: re.Match[str]) -> str:
        return match[0] if match[1] else "\\\\"

    def command(match: re.Match[str]) -> str:
        return match[0] if match[0] == "\\\\" else f"\\{match[0]}"

    is_latex = any(not match[1] for match in ESCAPE.finditer(part.rstrip("\\")))
    if not is_latex:
        return part
    commands = re.sub(COMMAND.pattern.removesuffix("?"), command, part)
    return ESCAPE.sub(known, commands)


def _candidates(part: str, texts: Sequence[str]) -> list[str]:
    """Ways to end the object, the least invasive one first."""
    end, comma, string = _scan(part)
    if end is not None:
        return [part[: end + 1]]
    found = []
    key = re.search(r'"([^"\\]*)"\s*:\s*$', part[:string]) if string is not None else None
    if key and key[1] in texts:
        found.append(OPEN_END.sub("", part) + '"}')
    if comma is not None:
        found.append(part[:comma] + "}")
    return found


def _scan(part: str) -> tuple[int | None, int | None, int | None]:
    """Where the object ends, where its last member did, and where an open string begins."""
    depth, comma, string, skip = 0, None, None, False
    for place, sign in enumerate(part):
        if skip:
            skip = False
        elif string is not None:
            skip = sign == "\\"
            string = None if sign == '"' else string
        elif sign == '"':
            string = place
        elif sign in "{[":
            depth += 1
        elif sign in "}]":
            depth -= 1
            if depth == 0:
                return place, comma, None
        elif sign == "," and depth == 1:
            comma = place
    return None, comma, string
