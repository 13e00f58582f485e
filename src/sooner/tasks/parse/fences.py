"""Answers that a model wrapped in one code fence, as many do with Markdown."""

from __future__ import annotations

import re

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(\S*)[ \t]*")
WRAPPERS = ("markdown", "md")
"""What a fence around a whole answer says; one without a name may be the page's own listing."""


def unwrapped(text: str, names: tuple[str, ...] = WRAPPERS) -> str:
    """What stands in the fence, if the whole answer is one; else the text as it is.

    Fences inside stay. One that was never closed reaches to the end, as in CommonMark.

    Args:
        names: what the fence has to be called.
    """
    lines = text.strip().split("\n")
    opening = FENCE.fullmatch(lines[0])
    if opening is None or opening[2].lower() not in names:
        return text
    mark, inner = opening[1], ""
    for place, line in enumerate(lines[1:], 1):
        found = FENCE.fullmatch(line)
        if found is None:
            continue
        if inner:
            inner = "" if _closes(found, inner) else inner
        elif _closes(found, mark):
            return "\n".join(lines[1:place]) if place == len(lines) - 1 else text
        else:
            inner = found[1]
    return "\n".join(lines[1:])


def _closes(found: re.Match[str], mark: str) -> bool:
    """Whether a fence ends the one that `mark` began."""
    return not found[2] and found[1][0] == mark[0] and len(found[1]) >= len(mark)
