"""Tree edit distance similarity of tables (TEDS; Zhong et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sooner.documents.tables import Table, read_table

from ..libraries import needed
from .edit import edit_distance

RUNAWAY = 10
"""With more than so many times the other's nodes a table counts as none of it: TEDS would be below
1 / RUNAWAY, and take minutes to say so."""


@dataclass(eq=False)
class Node:
    """A node of a table's tree: `table`, its rows `tr`, their cells `td`.

    Attributes:
        tag: of the three.
        span: rows and columns of a cell.
        text: of a cell.
        children: below it.
    """

    tag: str
    span: tuple[int, int] = (1, 1)
    text: str = ""
    children: list[Node] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Nodes below it."""
        return sum(1 + child.size for child in self.children)


def teds(prediction: str, truth: str) -> float:
    """1 - edit distance of two tables' trees by the number of nodes of the larger one.

    A node that is missing or too much costs 1, a cell of another span 1, and one of another text
    the normalised edit distance of the texts. Head and body are not told apart, `th` is `td`.

    Args:
        prediction, truth: tables in HTML or with Markdown's pipes; empty for none.

    Returns:
        1 for the same table (two empty ones too), 0 if one is empty or has more than ten times the
        nodes of the other.

    Raises:
        SoonerError: apted or rapidfuzz is not installed.
    """
    return _similarity(prediction, truth, with_text=True)


def teds_structure(prediction: str, truth: str) -> float:
    """TEDS-S: the same without the texts of cells."""
    return _similarity(prediction, truth, with_text=False)


def tree(table: Table) -> Node:
    """A table as a tree of two levels."""
    rows = [
        Node("tr", children=[Node("td", (cell.rows, cell.columns), cell.text) for cell in row])
        for row in table
    ]
    return Node("table", children=rows)


def _similarity(prediction: str, truth: str, with_text: bool) -> float:
    apted = needed("apted", "TEDS")
    tables = [read_table(text) if text.strip() else [] for text in (prediction, truth)]
    if tables[0] == tables[1]:
        return 1.0
    predicted, meant = (tree(table) for table in tables)
    if max(predicted.size, meant.size) > RUNAWAY * min(predicted.size, meant.size):
        return 0.0
    distance = apted.APTED(predicted, meant, _costs(with_text)()).compute_edit_distance()
    return 1.0 - distance / max(predicted.size, meant.size)


@cache
def _costs(with_text: bool) -> type[Any]:
    """What an edit costs; a class of apted's, which may not be installed."""
    apted = needed("apted", "TEDS")

    class TedsCosts(apted.Config):  # type: ignore[name-defined]
        def rename(self, first: Node, second: Node) -> float:
            if (first.tag, first.span) != (second.tag, second.span):
                return 1.0
            if not with_text or first.tag != "td":
                return 0.0
            return edit_distance(first.text, second.text)

        def children(self, node: Node) -> list[Node]:
            return node.children

    return TedsCosts
