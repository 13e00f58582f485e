"""BLEU of a text."""

from __future__ import annotations

import re

from ..libraries import needed
from .words import CJK

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
