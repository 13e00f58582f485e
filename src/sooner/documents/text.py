"""Text of one region: lines joined to paragraphs, marks of headings, items and formulas."""

from __future__ import annotations

import re

LINE_END = re.compile(r"[ \t]*\n[ \t]*")
HYPHENATED = re.compile(r"(?<=[^\W\d_])[-\u2010\u00ad]\n(?=[a-zß-öø-ÿ])")
"""A word divided at the end of a line: letters before, a small letter after."""

WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
BETWEEN_WIDE = re.compile(f"(?<=[{WIDE}])[ \t]*\n[ \t]*(?=[{WIDE}])")
"""Chinese and Japanese have no spaces between words, so none where a line ends."""

BULLET = re.compile(r"[ \t]*[•●▪◦‣∙·*\-–—○□■][ \t]+")
NUMBER = re.compile(r"[ \t]*\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)][ \t]+")
HEADING = re.compile(r"#{1,6}\s")
FENCE = "```"
WRAPPERS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))


def reflowed(text: str) -> str:
    """Lines of a paragraph in one, divided words whole again; blank lines and code stay."""
    if FENCE in text:
        return text.strip()
    return "\n\n".join(_joined(part) for part in re.split(r"\n[ \t]*\n", text.strip()))


def _joined(paragraph: str) -> str:
    whole = HYPHENATED.sub("", paragraph.strip())
    return LINE_END.sub(" ", BETWEEN_WIDE.sub("", whole))


def heading(text: str, level: int) -> str:
    """With as many `#` as the level says, if it has none yet."""
    line = reflowed(text).replace("\n\n", " ")
    return line if HEADING.match(line) or not line else f"{'#' * min(max(level, 1), 6)} {line}"


def items(text: str) -> str:
    """Items of a list, each on a line that begins with `-` or its number."""
    parts: list[str] = []
    for line in text.strip().splitlines():
        if parts and not BULLET.match(line) and not NUMBER.match(line):
            parts[-1] = f"{parts[-1]}\n{line}"
        else:
            parts.append(line)
    return "\n".join(_item(part) for part in parts)


def _item(text: str) -> str:
    number = NUMBER.match(text)
    if number:
        return f"{number[0].strip()} {_joined(text[number.end() :])}"
    bullet = BULLET.match(text)
    return f"- {_joined(text[bullet.end() :] if bullet else text)}"


def bare_formula(text: str) -> str:
    """LaTeX without dollars or brackets around it."""
    text = text.strip().strip("`").strip()
    for start, end in WRAPPERS:
        inner = text[len(start) : len(text) - len(end)]
        wrapped = text.startswith(start) and text.endswith(end) and len(text) > len(start + end)
        if wrapped and start not in inner:
            return inner.strip()
    return text
