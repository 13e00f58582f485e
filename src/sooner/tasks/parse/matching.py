"""Which part of a page a block of the target's text was read from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...documents import Region
from ...documents.boxes import around
from ...documents.drafters.plain import blocks
from ...documents.labels import TEXT

WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]|[^\W_]+")
"""Words; of Chinese, Japanese and Korean, single characters."""

SAME = 0.5
"""Share of a block's words that its regions must hold together."""

INSIDE, FEW = 0.8, 2
"""Share of a further region's words that a block must hold, and words that it must have at least:
page numbers are everywhere."""


def placed(text: str, regions: Sequence[Region]) -> list[Region]:
    """Blocks of a Markdown text, each with the box of the regions that it was read from.

    A drafter's regions are matched by their words, each of which counts once: what one block has
    taken, a later one with the same words won't find. A block may be of several regions that
    follow each other, such as a list, and several blocks of one. What a block is, its own text says
    best, where it says anything but plain text.

    Args:
        regions: as drafters found them, in reading order.
    """
    left = [Counter(words(" ".join(region.drafts[:1]))) for region in regions]
    sizes = [one.total() for one in left]
    found = []
    for block in blocks(text):
        places = _claimed(Counter(words(" ".join(block.drafts))), left, sizes)
        found.append(_at(block, [regions[place] for place in places]) if places else block)
    return [replace(region, order=order) for order, region in enumerate(found)]


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _claimed(mine: Counter[str], left: list[Counter[str]], sizes: Sequence[int]) -> list[int]:
    """The regions that hold a block's words, best first; the words are taken out of them."""
    rest, taken = mine.copy(), list[int]()
    while rest and (best := _next(rest, taken, left, sizes)) is not None:
        taken.append(best)
        rest -= left[best]
    if not mine or mine.total() - rest.total() < SAME * mine.total():
        return []
    for place in taken:
        used = mine & left[place]
        left[place] -= used
        mine -= used
    return taken


def _next(
    rest: Counter[str], taken: list[int], left: list[Counter[str]], sizes: Sequence[int]
) -> int | None:
    """The region with most of the rest; after the first one, a neighbour that lies within it."""
    shares = [(rest & theirs).total() for theirs in left]
    near: Sequence[int] = range(len(left))
    if taken:
        ends = {min(taken) - 1, max(taken) + 1}
        near = [n for n in near if n in ends and shares[n] >= max(INSIDE * sizes[n], FEW)]
    best = max(near, key=shares.__getitem__, default=None)
    return best if best is not None and shares[best] else None


def _at(block: Region, regions: Sequence[Region]) -> Region:
    first = regions[0]
    boxes = [region.bbox for region in regions if region.bbox is not None]
    return replace(
        block,
        bbox=around(boxes) if boxes else None,
        label=first.label if block.label == TEXT else block.label,
        level=block.level or first.level,
    )


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
