"""Normalised edit distance."""

from __future__ import annotations

from ..libraries import needed


def edit_distance(prediction: str, truth: str) -> float:
    """Levenshtein distance over characters by the length of the longer text.

    Returns:
        0 for the same text (two empty ones too), 1 for nothing in common.

    Raises:
        SoonerError: rapidfuzz is not installed.
    """
    distance = needed("rapidfuzz.distance", "the edit distance")
    return float(distance.Levenshtein.normalized_distance(prediction, truth))
