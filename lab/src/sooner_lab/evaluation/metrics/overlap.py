"""Which words two texts share, wherever they stand."""

from __future__ import annotations

from dataclasses import dataclass

from .words import split_words


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
