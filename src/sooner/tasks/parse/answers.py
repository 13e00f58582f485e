"""Reads a target's answer: its Markdown, and regions with boxes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from ...documents import PageDraft, Region, to_markdown
from ...documents.drafters.saved import blocks
from ...documents.forms import FENCES, FormAnswer, PageForm
from ...documents.regions import Label, Size, around, resized
from .contexts import offsets_of
from .decoding import DecodedRow
from .families import FORMS, MARKDOWN_HTML
from .result import ParsedRegion, parsed_regions

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*(\S*)[ \t]*")


def unwrapped(text: str, names: tuple[str, ...] = FENCES) -> str:
    """Returns what stands in the fence, if the whole answer is one; else the text as it is.

    Fences inside stay. One that was never closed reaches to the end, as in CommonMark.

    Args:
        names: what the fence has to be called; one without a name may be the page's own listing.
    """
    lines = text.strip().split("\n")
    opening = FENCE.fullmatch(lines[0])
    if opening is None or opening[2].lower() not in names:
        return text
    marks = [opening[1]]  # of the fences that are open
    for place, line in enumerate(lines[1:], 1):
        match = FENCE.fullmatch(line)
        if match is None:
            continue
        if not match[2] and match[1][0] == marks[-1][0] and len(match[1]) >= len(marks[-1]):
            marks.pop()
        elif len(marks) == 1:
            marks.append(match[1])
        if not marks:
            return "\n".join(lines[1:place]) if place == len(lines) - 1 else text
    return "\n".join(lines[1:])


WORD = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af]|[^\W_]+")
"""Words; of Chinese, Japanese and Korean, single characters."""

SAME = 0.5
"""Share of a block's words that its regions must hold together."""

INSIDE, FEW = 0.8, 2
"""Share of a further region's words that a block must hold, and words that it must have at least:
page numbers are everywhere."""


def placed(text: str, regions: Sequence[Region]) -> list[Region]:
    """Returns blocks of a Markdown text, each with the box of the regions that it was read from.

    A drafter's regions are matched by their words, each of which counts once: what one block has
    taken, a later one with the same words won't find. A block may be of several regions that
    follow each other, such as a list, and several blocks of one. What a block is, its own text says
    best, where it says anything but plain text. Pictures, of which a text says nothing, stay where
    the drafter saw them: before the first block of what comes behind them.

    Args:
        regions: as drafters found them, in reading order.
    """
    left = [words(region.drafts[:1]) for region in regions]
    sizes = [counter.total() for counter in left]
    pictures = [
        place
        for place, region in enumerate(regions)
        if region.label == Label.PICTURE and region.bbox is not None and not any(region.drafts)
    ]
    result = []
    for block in blocks(text):
        places = _claimed(words(block.drafts), left, sizes)
        while pictures and places and pictures[0] < min(places):
            result.append(regions[pictures.pop(0)])
        result.append(_at(block, [regions[place] for place in places]) if places else block)
    result += [regions[place] for place in pictures]
    return [replace(region, order=order) for order, region in enumerate(result)]


def words(texts: Sequence[str]) -> Counter[str]:
    return Counter(WORD.findall(" ".join(texts).lower()))


def _claimed(mine: Counter[str], left: list[Counter[str]], sizes: Sequence[int]) -> list[int]:
    """Returns the regions that hold a block's words, and takes these out of them: the one with most
    of them first, then its neighbours that lie within the block.
    """
    shares = [(mine & counter).total() for counter in left]
    best = max(range(len(left)), key=shares.__getitem__, default=-1)
    if best < 0 or not shares[best]:
        return []

    def is_inside(place: int) -> bool:
        return shares[place] >= max(INSIDE * sizes[place], FEW)

    before = takewhile(is_inside, range(best - 1, -1, -1))
    claimed = [best, *before, *takewhile(is_inside, range(best + 1, len(left)))]
    rest = mine.copy()
    for place in claimed:
        rest -= left[place]
    if mine.total() - rest.total() < SAME * mine.total():
        return []
    for place in claimed:
        used = mine & left[place]
        left[place] -= used
        mine -= used
    return claimed


def _at(block: Region, regions: Sequence[Region]) -> Region:
    first = regions[0]
    boxes = [region.bbox for region in regions if region.bbox is not None]
    return replace(
        block,
        bbox=around(boxes) if boxes else None,
        label=first.label if block.label == Label.TEXT else block.label,
        level=block.level or first.level,
    )


@dataclass(frozen=True)
class Reading(FormAnswer):
    """Holds the content of a target's answer: its regions, and its Markdown.

    Attributes:
        markdown: blocks separated by blank lines.
    """

    markdown: str = ""


def read(text: str, form: str, draft: PageDraft, size: Size, seen: Size | None) -> Reading:
    """Returns an answer in a form of `families.FORMS`, out of a code fence if it is in one.

    Args:
        draft: whose regions say where a text without boxes is from.
        size: of the page's picture.
        seen: the size in which boxes are said, if it is not that.
    """
    target = FORMS[form]
    text = unwrapped(text, target.fences)
    if target.has_boxes:
        return _boxed(target, text, size, seen)
    text = target.body(text)
    regions = placed(text, draft.regions)
    texts = [region.drafts[0] if region.drafts else "" for region in regions]
    return Reading(regions, texts, markdown=f"{text.strip()}\n" if text.strip() else "")


def _boxed(target: PageForm, text: str, size: Size, seen: Size | None) -> Reading:
    answer = target.read(text)
    if not answer.regions:  # nothing to be saved: the answer itself is all there is
        is_broken = bool(text.strip()) and answer.repaired
        return Reading(repaired=is_broken, markdown=text.strip())
    regions = resized(answer.regions, target.frame or seen, size)
    markdown = to_markdown(regions, MARKDOWN_HTML)
    return Reading(regions, answer.written, answer.repaired, markdown)


def described(
    reading: Reading, output: DecodedRow, raw: str, tokenizer: Any, size: Size
) -> list[ParsedRegion]:
    """Returns regions with boxes of both kinds and the share of each that was drafted.

    Args:
        output: the tokens of `raw`; if a tokenizer makes others of it, shares stay unknown.
    """
    offsets = offsets_of(tokenizer, raw) if output.tokens else None
    is_known, at = offsets is not None and offsets[0] == output.tokens, 0
    shares = []
    for text in reading.written:
        share = None
        start = raw.find(text, at) if text and is_known else -1
        if offsets is not None and start >= 0:
            at = start + len(text)
            pairs = zip(offsets[1], output.drafted, strict=True)
            inside = [flag for begin, flag in pairs if start <= begin < at]
            share = sum(inside) / len(inside) if inside else None
        shares.append(share)
    return parsed_regions(reading.regions, size, shares)
