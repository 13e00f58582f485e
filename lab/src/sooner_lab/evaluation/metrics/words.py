"""Words of a text, and how many of them are right."""

from __future__ import annotations

import re

from ..libraries import needed

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
