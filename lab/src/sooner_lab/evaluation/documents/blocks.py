"""A Markdown page as blocks of text, formulas and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sooner.documents.tables import RULE

Kind = Literal["text", "formula", "table"]

SPECIAL = re.compile(
    r"(?P<code>^[ \t]*(?P<fence>```+|~~~+)[^\n]*\n(?P<body>.*?)(?:^[ \t]*(?P=fence)[ \t]*$|\Z))"
    r"|(?P<table><table\b.*?(?:</table\s*>|\Z))"
    r"|(?P<formula>\$\$.+?\$\$|\\\[.+?\\\]"
    r"|\\begin\{(?P<name>equation|align|gather|multline|eqnarray)(?P<star>\*?)\}.+?"
    r"\\end\{(?P=name)(?P=star)\})",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
HEADING = re.compile(r"^[ \t]*#{1,6}[ \t].*$", re.MULTILINE)
BLANK = re.compile(r"\n[ \t]*\n")


@dataclass(frozen=True)
class PageBlock:
    """A part of a page.

    Attributes:
        kind: what it is.
        text: as it was written; of a table HTML or pipes, of code what stands between its fences.
    """

    kind: Kind
    text: str


def read_blocks(markdown: str) -> list[PageBlock]:
    """Blocks in their order: tables, displayed formulas, code, and text between blank lines.

    A heading is a block of its own. Formulas within a line stay in their text.
    """
    markdown = markdown.replace("\r\n", "\n")
    blocks, at = list[PageBlock](), 0
    for match in SPECIAL.finditer(markdown):
        blocks += _texts(markdown[at : match.start()])
        blocks.append(_special(match))
        at = match.end()
    return [block for block in [*blocks, *_texts(markdown[at:])] if block.text.strip()]


def _special(match: re.Match[str]) -> PageBlock:
    if match["table"]:
        return PageBlock("table", match["table"])
    if match["formula"]:
        return PageBlock("formula", match["formula"])
    return PageBlock("text", match["body"] or "")


def _texts(text: str) -> Iterator[PageBlock]:
    for part in BLANK.split(HEADING.sub(r"\n\n\g<0>\n\n", text)):
        yield from _pipes(part.strip("\n"))


def _pipes(part: str) -> Iterator[PageBlock]:
    """A part without blank lines; a table of pipes may stand between lines of text."""
    lines = part.split("\n")
    rules = [n for n, line in enumerate(lines) if n and "|" in line and RULE.fullmatch(line)]
    rule = next((n for n in rules if "|" in lines[n - 1]), None)
    if rule is None:
        yield PageBlock("text", part)
        return
    end = next((n for n in range(rule, len(lines)) if "|" not in lines[n]), len(lines))
    yield PageBlock("text", "\n".join(lines[: rule - 1]))
    yield PageBlock("table", "\n".join(lines[rule - 1 : end]))
    yield from _pipes("\n".join(lines[end:]))
