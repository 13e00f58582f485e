"""Texts and tables compared; all metrics are between 0 and 1.

>>> edit_distance("a page", "a pane")  # 0 is the same
0.16666666666666666
>>> word_accuracy("a page", "a pane")  # 1 is the same, here and in the others
0.5
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sooner.documents.tables import Table, read_table

from .libraries import needed

CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
"""Scripts without blanks between words, and Korean."""

_WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]+")


def split_words(text: str) -> list[str]:
    """What stands between blanks; of Chinese, Japanese and Korean, single characters."""
    return _WORD.findall(text)


def word_accuracy(prediction: str, truth: str) -> float:
    """Share of words that are right and in their place: 1 - edit distance over words.

    The distance is divided by the number of words of the longer text, so that a text that runs
    away comes near 0 and not below.

    Returns:
        1 for the same words (two texts without a word too), 0 for none in common.

    Raises:
        SoonerError: rapidfuzz is not installed.
    """
    distance = needed("rapidfuzz.distance", "the word accuracy")
    predicted, meant = split_words(prediction), split_words(truth)
    return float(distance.Levenshtein.normalized_similarity(predicted, meant))


def edit_distance(prediction: str, truth: str) -> float:
    """Levenshtein distance over characters by the length of the longer text.

    Returns:
        0 for the same text (two empty ones too), 1 for nothing in common.

    Raises:
        SoonerError: rapidfuzz is not installed.
    """
    distance = needed("rapidfuzz.distance", "the edit distance")
    return float(distance.Levenshtein.normalized_distance(prediction, truth))


_CJK = re.compile(f"[{CJK}]")


def bleu(prediction: str, truth: str) -> float:
    """Sentence BLEU-4 by sacrebleu, a page being one sentence.

    Shorter n-grams count alone where the text has no longer ones (`use_effective_order`); counts of
    zero are smoothed as sacrebleu does. Words are cut by its `13a`, or by `zh` if the truth has
    Chinese, Japanese or Korean in it.

    Returns:
        1 for the same text (two empty ones too), 0 if one of them is empty.

    Raises:
        SoonerError: sacrebleu is not installed.
    """
    metrics = needed("sacrebleu.metrics", "BLEU")
    if not prediction.strip() or not truth.strip():
        return float(prediction.strip() == truth.strip())
    cut = "zh" if _CJK.search(truth) else "13a"
    scorer = metrics.BLEU(tokenize=cut, effective_order=True)
    # Rounding takes the score of the same text a hair above 100.
    return min(float(scorer.sentence_score(prediction, [truth]).score) / 100, 1.0)


class _NoSynonyms:
    """Stands for WordNet, whose files would have to be fetched: no word has a synonym."""

    def synsets(self, word: str) -> list[Any]:
        return []


def meteor(prediction: str, truth: str) -> float:
    """METEOR by nltk (alpha 0.9, beta 3, gamma 0.5) on words and their Porter stems.

    Its third stage, synonyms out of WordNet, finds nothing, so that figures are at most as high as
    those with it; on the same page read by two parsers there is little between them.

    Returns:
        Up to 1, which only long texts reach (one chunk costs 0.5 / words^3); 0 if one is empty, 1
        if both are.

    Raises:
        SoonerError: nltk is not installed.
    """
    score = needed("nltk.translate.meteor_score", "METEOR")
    predicted, meant = split_words(prediction), split_words(truth)
    if not predicted or not meant:
        return float(predicted == meant)
    return float(score.single_meteor_score(meant, predicted, wordnet=_NoSynonyms()))


@dataclass(frozen=True)
class Overlap:
    """Precision, recall and F1 of a set of words, 0 to 1."""

    precision: float
    recall: float
    f1: float


def overlap(prediction: str, truth: str) -> Overlap:
    """Compare the words of two texts as sets: order and repetition count for nothing.

    Two texts without a word agree; one of them without a word shares nothing.
    """
    predicted, meant = set(split_words(prediction)), set(split_words(truth))
    if not predicted and not meant:
        return Overlap(1.0, 1.0, 1.0)
    both = len(predicted & meant)
    precision = both / len(predicted) if predicted else 0.0
    recall = both / len(meant) if meant else 0.0
    return Overlap(precision, recall, 2 * both / (len(predicted) + len(meant)))


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
