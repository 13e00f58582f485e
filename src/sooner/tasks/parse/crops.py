"""Selects the regions that stage 1 reads on crops of the page, and groups them into batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...documents import Page, Region
from ...documents.page import Picture
from ...documents.regions import FORMULA, area, around, overlap
from .contexts import Ids, Piece
from .forms import FORMS

MIN_SIDE, MAX_ASPECT = 8, 100.0
"""Crops that are smaller, or longer by far than wide, are refused by processors."""

TINY, TOGETHER = 40, 160
"""Characters of a region up to which it shares a crop with its neighbours, and of all of these."""

LOOSE = 1.5
"""Area of a crop of several regions at most, in areas of these: what lies between is read, too."""

PADDED = 1.5
"""Prompt tokens of a batch with its padding, in prompt tokens of its crops, at most."""

UNKNOWN = 0.5
"""Confidence that a region counts for of which the drafter says none."""

TIMES, SPARE, EMPTY = 2, 8, 16
"""New tokens at most on a crop: `TIMES` those of its draft, and `SPARE` more; `EMPTY` without a
draft."""

RESULT_SPARE = 32
"""Further tokens where the output is the result, not a draft of the page."""


@dataclass(frozen=True)
class Part:
    """Neighbouring regions that are read on one crop.

    Attributes:
        pieces: one or more, in reading order.
        region: of all of them, with the box around them.
    """

    pieces: tuple[Piece, ...]
    region: Region

    @property
    def piece(self) -> Piece:
        """All of them as one, with as many drafts as the one that has most."""
        count = max(len(piece.texts) for piece in self.pieces)
        texts = ["".join(self._written(place)) for place in range(count)]
        return replace(self.pieces[0], region=self.region, texts=texts)

    def _written(self, place: int) -> list[str]:
        texts = [piece.texts[min(place, len(piece.texts) - 1)] for piece in self.pieces]
        ends = [*(piece.end for piece in self.pieces[:-1]), ""]
        return [text + end for text, end in zip(texts, ends, strict=True)]

    def split(self, text: str) -> dict[int, str]:
        """Returns what was read on the crop, by `Piece.place`.

        A text that does not fall into as many blocks is an alternative of the first region.
        """
        texts, rest = {}, text
        for piece in self.pieces[:-1]:
            head, end, rest = rest.partition(piece.end or "\n")
            if not end:
                return {self.pieces[0].place: text}
            texts[piece.place] = head
        return {**texts, self.pieces[-1].place: rest}


@dataclass(frozen=True)
class Crop:
    """A crop of the page and its drafts, as the target gets them.

    Attributes:
        part: what it shows.
        picture: `[height, width, 3]` uint8.
        drafts: token ids of its drafts; may be empty.
        slots: prompt tokens, by the size of the picture.
    """

    part: Part
    picture: Picture
    drafts: list[Ids]
    slots: int

    @property
    def length(self) -> int:
        """Returns tokens of its longest draft."""
        return max(map(len, self.drafts), default=0)

    def limit(self, is_result: bool = False) -> int:
        """Returns most new tokens: a multiple of the longest draft, which is only about right."""
        if is_result:
            return TIMES * self.length + RESULT_SPARE
        return TIMES * self.length + SPARE if self.length else EMPTY

    @property
    def confidence(self) -> float:
        """That of the region which the drafter is least sure of."""
        return min(_confidence(piece.region) for piece in self.part.pieces)

    def repetition(self, limit: int, is_result: bool = False) -> int:
        """Returns tokens that may repeat a period: no more than it was expected to say. 0
        for any.
        """
        return limit if is_result or not limit else min(limit, self.length + SPARE)


def unsure(pieces: Sequence[Piece], sure: float) -> list[Piece]:
    """Returns the regions that the drafter is not sure of, or of which drafters say different
    things.

    A formula is never sure: confidence is about its characters, not its structure.
    """
    return [
        piece
        for piece in pieces
        if len(piece.texts) > 1
        or piece.region.confidence is None
        or piece.region.confidence <= sure
        or piece.region.label == FORMULA
    ]


def apart(pieces: Sequence[Piece], page: Page) -> list[Part]:
    """Returns each region on a crop of its own, if the processor accepts its size."""
    return [Part((piece,), piece.region) for piece in pieces if is_worth_a_look(piece.region, page)]


def together(pieces: Sequence[Piece], page: Page) -> list[Part]:
    """Returns tiny regions with the tiny ones behind them, others on their own.

    Args:
        pieces: some of a page, in reading order.
    """
    parts: list[Part] = []
    for part in apart(pieces, page):
        joined = _joined(parts[-1], part, pieces) if parts else None
        if joined is None:
            parts.append(part)
        else:
            parts[-1] = joined
    return parts


def _joined(before: Part, part: Part, pieces: Sequence[Piece]) -> Part | None:
    """Both as one, if they are small, beside each other, asked about in the same words, and nothing
    else is between them."""
    mine = (*before.pieces, *part.pieces)
    questions = {item.question for item in mine}
    if len(questions) > 1 or not all(
        item is None or FORMS[item.form].is_plain for item in questions
    ):
        return None
    letters = [len(item.texts[0]) for item in mine]
    if max(letters) > TINY or sum(letters) > TOGETHER or part.pieces[0].place != _next(before):
        return None
    boxes = [item.region.bbox for item in mine if item.region.bbox is not None]
    frame = around(boxes)
    if area(frame) > LOOSE * sum(map(area, boxes)):
        return None
    rest = (
        item.region.bbox for item in pieces if item not in mine and item.region.bbox is not None
    )
    if any(overlap(frame, box) > 0 for box in rest):
        return None
    return Part(mine, replace(before.region, bbox=frame))


def _next(part: Part) -> int:
    return part.pieces[-1].place + 1


def affordable(crops: Sequence[Crop], seconds: float, slot_seconds: float) -> list[Crop]:
    """Returns the regions that a prefill of so many seconds has room for, the least sure ones
    first.
    """
    selected, left = [], seconds
    for crop in sorted(crops, key=lambda crop: crop.confidence):
        left -= crop.slots * slot_seconds
        if left < 0:
            break
        selected.append(crop)
    return selected


def batches(crops: Sequence[Crop], rows: int) -> list[list[Crop]]:
    """Returns crops of similar size together, so that little of a batch is padding.

    Args:
        rows: of a batch, at most.
    """
    result: list[list[Crop]] = []
    real = 0
    for crop in sorted(crops, key=lambda crop: -crop.slots):  # the first of a batch is the widest
        now = result[-1] if result else []
        is_full = len(now) == rows
        if not now or is_full or (len(now) + 1) * now[0].slots > PADDED * (real + crop.slots):
            result.append([])
            real = 0
        result[-1].append(crop)
        real += crop.slots
    return result


def is_worth_a_look(region: Region, page: Page) -> bool:
    """Returns whether a region has a box on the page that a processor will take."""
    if region.bbox is None:
        return False
    x0, y0, x1, y1 = region.bbox
    across = min(x1, page.width) - max(x0, 0.0)
    down = min(y1, page.height) - max(y0, 0.0)
    if min(across, down) < MIN_SIDE:
        return False
    return max(across, down) <= MAX_ASPECT * min(across, down)


def _confidence(region: Region) -> float:
    return UNKNOWN if region.confidence is None else region.confidence
