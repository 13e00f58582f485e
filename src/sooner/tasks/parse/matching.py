"""Which part of a page a block of the target's text was read from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...documents import Region
from ...documents.drafters.plain import blocks
from ...documents.labels import TEXT

WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]|[^\W_]+")
"""Words; of Chinese, Japanese and Korean, single characters."""

SAME = 0.5
"""Share of a block's words that a region must hold."""


def placed(text: str, regions: Sequence[Region]) -> list[Region]:
    """Blocks of a Markdown text, each with the box of the region that it was read from.

    A drafter's regions are matched by their words, each of which counts once: what one block has
    taken, a later one with the same words won't find. What a block is, its own text says best,
    where it says anything but plain text.

    Args:
        regions: as drafters found them.
    """
    left = [Counter(words(" ".join(region.drafts[:1]))) for region in regions]
    found = []
    for block in blocks(text):
        place = _best(Counter(words(" ".join(block.drafts))), left)
        found.append(block if place is None else _at(block, regions[place]))
    return [replace(region, order=order) for order, region in enumerate(found)]


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _best(mine: Counter[str], left: list[Counter[str]]) -> int | None:
    """The region that holds most of a block's words, which are taken out of it."""
    total = mine.total()
    shares = [(mine & theirs).total() for theirs in left]
    most = max(shares, default=0)
    if not total or most < SAME * total:
        return None
    place = shares.index(most)
    left[place] -= mine
    return place


def _at(block: Region, region: Region) -> Region:
    label = region.label if block.label == TEXT else block.label
    return replace(block, bbox=region.bbox, label=label, level=block.level or region.level)


def accepted_shares(
    texts: Sequence[str], whole: str, begins: Sequence[int], drafted: Sequence[bool]
) -> list[float | None]:
    """Share of the tokens of each text that were drafted.

    Args:
        texts: parts of `whole`, in their order there; `None` comes back for what is not found.
        begins: where each token begins in `whole`.
        drafted: whether each token was drafted.
    """
    shares: list[float | None] = []
    at = 0
    for text in texts:
        start = whole.find(text, at) if text else -1
        if start < 0:
            shares.append(None)
            continue
        at = start + len(text)
        inside = [flag for begin, flag in zip(begins, drafted, strict=True) if start <= begin < at]
        shares.append(sum(inside) / len(inside) if inside else None)
    return shares
