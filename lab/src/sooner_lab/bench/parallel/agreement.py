"""Lengths of runs of accepted draft tokens, over all texts that were compared.

Timed runs are few. Texts that drafts merely read cost no clock, so more clips can be asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..intervals import quotient
from .book import Book
from .contenders import UNPRUNED
from .verdicts import rate, run_length, runs

READ = "read: "
"""Marks the records of an arm that only read the text of a clip."""


def read_name(arm: str) -> str:
    """What an arm is called in the book where it was not timed."""
    return READ + arm


def agreement(book: Book, arm: str, seed: int) -> dict[str, Any]:
    """What the drafts of an arm would have said, see `verdicts`; and with positions packed.

    `run_length_share` is M over the unpruned draft's on the same clips, with its 95 % interval.
    """
    found: dict[str, Any] = {}
    own, packed = (_texts(book, arm, key) for key in ("verdicts", "repacked"))
    for told, name in ((own, "draft"), (packed, "repacked_draft")):
        texts = list(told.values())
        if texts:
            found |= {f"{name}_run_length": run_length(texts), f"{name}_agreement": rate(texts)}
    whole = _texts(book, UNPRUNED, "verdicts")
    both = [clip for clip in own if clip in whole]
    if both:
        found["run_length_share"] = quotient(_lengths(own, both), _lengths(whole, both), seed)
        found["read_clips"] = len(both)
    return found


def _texts(book: Book, arm: str, key: str) -> dict[int, list[bool]]:
    """Verdicts by clip, of timed and of read ones."""
    records = [*book.of(arm), *book.of(read_name(arm))]
    return {one["clip"]: one[key] for one in records if one["repeat"] == 0 and one.get(key)}


def _lengths(
    texts: Mapping[int, Sequence[bool]], clips: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Of each clip the tokens of all its runs, and how many runs those are."""
    found = [runs(texts[clip]) for clip in clips]
    return [float(sum(one)) for one in found], [float(len(one)) for one in found]
