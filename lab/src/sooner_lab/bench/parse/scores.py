"""Text accuracy of drafts, of plain decoding and of each tolerance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sooner.documents.drafters.plain import blocks
from sooner.documents.regions import TABLE
from sooner.errors import SoonerError

from .settings import ParseBenchSettings

Data = dict[str, Any]
Metric = Callable[[str, str], float | None]
SCORED = ("draft", "plain", "hsd", "hsd-page-relaxed", "hsd-relaxed")
"""Whose texts are compared with the truth; other exact arms say what `plain` says."""


def accuracy(texts: Sequence[Data], settings: ParseBenchSettings, of: str) -> Data:
    """Means over pages of every metric whose library is installed.

    Args:
        texts: of `speed.told`.
        of: the part that they are from.

    Returns:
        `rows`, one a method; `missing`, metrics that could not be taken; `words_lost`, points of
        word accuracy between plain decoding and each relaxed arm, with its interval.
    """
    metrics, missing = _metrics()
    names = [name for name in SCORED if texts and name in texts[0]]
    scores = {name: _scores(texts, name, metrics) for name in names}
    rows = [{"method": name, **_means(scores[name])} for name in names]
    return {
        "of": of,
        "pages": len(texts),
        "rows": rows,
        "missing": missing,
        "words_lost": _lost(scores, settings.seed),
    }


def _metrics() -> tuple[dict[str, Metric], list[str]]:
    """Metrics by name, and the names of those that lack their library."""
    from ...evaluation import metrics

    known: dict[str, Metric] = {
        "edit_distance": metrics.edit_distance,
        "words": metrics.word_accuracy,
        "teds": _tables(metrics.teds),
        "bleu": metrics.bleu,
        "meteor": metrics.meteor,
    }
    available, missing = {}, []
    for name, metric in known.items():
        try:
            metric("| a |\n| --- |\n| b |", "| a |\n| --- |\n| c |")
        except SoonerError as error:
            missing.append(f"{name}: {error}")
        else:
            available[name] = metric
    return available, missing


def _tables(teds: Callable[[str, str], float]) -> Metric:
    """Mean TEDS of a page's tables, each against the one at its place; `None` without any."""

    def metric(text_out: str, truth: str) -> float | None:
        predicted, meant = (
            [block.drafts[0] for block in blocks(text) if block.label == TABLE]
            for text in (text_out, truth)
        )
        if not meant:
            return None
        predicted += [""] * (len(meant) - len(predicted))
        scores = [teds(block, other) for block, other in zip(predicted, meant, strict=False)]
        return sum(scores) / len(scores)

    return metric


def _scores(texts: Sequence[Data], name: str, metrics: dict[str, Metric]) -> dict[str, list]:
    return {
        key: [metric(page[name].strip(), page["truth"].strip()) for page in texts]
        for key, metric in metrics.items()
    }


def _means(scores: dict[str, list]) -> Data:
    known = {
        key: [value for value in values if value is not None] for key, values in scores.items()
    }
    return {key: sum(values) / len(values) for key, values in known.items() if values}


def _lost(scores: dict[str, dict[str, list]], seed: int) -> list[Data]:
    """Points of word accuracy that a tolerance costs, and their 95 % interval over pages."""
    plain = scores.get("plain", {}).get("words")
    if not plain:
        return []
    lost = []
    for name in (name for name in scores if name.endswith("relaxed")):
        gaps = 100 * (np.array(plain) - np.array(scores[name]["words"]))
        picks = np.random.default_rng(seed).integers(len(gaps), size=(2000, len(gaps)))
        low, high = np.percentile(gaps[picks].mean(1), (2.5, 97.5))
        lost.append(
            {"method": name, "points": float(gaps.mean()), "interval": [float(low), float(high)]}
        )
    return lost
