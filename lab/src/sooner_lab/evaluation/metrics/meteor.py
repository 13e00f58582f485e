"""METEOR without synonyms."""

from __future__ import annotations

from typing import Any

from ..libraries import needed
from .words import split_words


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
