"""Drafts as token ids, cut from the tokenised page as the target would write it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from ...documents import PageDraft, Region
from .families import FORMS, FamilyPrompts

Ids = list[int]


@dataclass(frozen=True)
class Piece:
    """Holds the drafts of one region, in the target's output format.

    Attributes:
        place: index of the region in the draft's list.
        region: as they found it.
        texts: its drafts, the best first.
    """

    place: int
    region: Region
    texts: list[str]


def pieces_of(draft: PageDraft, form: str, size: tuple[int, int] | None = None) -> list[Piece]:
    """Returns regions with text in an output format, in reading order.

    Args:
        size: width and height in which the target says boxes, if not those of the draft.
    """
    return [
        Piece(place, region, texts)
        for place, region in enumerate(draft.regions)
        if (texts := FORMS[form].texts(region, draft.size, size))
    ]


def region_pieces(draft: PageDraft, ask: FamilyPrompts) -> list[Piece]:
    """Returns regions with text, each in the form in which the target answers about its crop.

    What stands on a crop has no neighbours, and a box that is the whole picture: forms with boxes
    are drafted without them.
    """
    pieces = []
    for place, region in enumerate(draft.regions):
        target, alone = FORMS[ask.about(region).form], replace(region, bbox=None)
        if region.drafts and (texts := target.texts(alone, draft.size)):
            around = target.start(alone), target.end(alone)
            pieces.append(Piece(place, region, [text.join(around) for text in texts]))
    return pieces


def with_region_texts(
    pieces: Sequence[Piece], region_texts: Mapping[int, str], ask: FamilyPrompts, draft: PageDraft,
    size: tuple[int, int] | None = None,
) -> list[Piece]:  # fmt: skip
    """Returns the same pieces, with stage 1's text of each in front of its drafts.

    Both are alternatives of one region: a crop may be read worse than it was drafted.

    Args:
        region_texts: texts by `Piece.place`, as the target wrote them about crops.
        size: as for `pieces_of`.
    """
    result = []
    for piece in pieces:
        text = region_texts.get(piece.place)
        if text is not None:
            texts = on_page(piece.region, text, ask, draft, size)
            piece = replace(piece, texts=list(dict.fromkeys([*texts, *piece.texts])))
        result.append(piece)
    return result


def on_page(
    region: Region, text: str, ask: FamilyPrompts, draft: PageDraft,
    size: tuple[int, int] | None = None,
) -> list[str]:  # fmt: skip
    """Returns what a target wrote about a region's crop, as it would write that on the page.

    Where both forms have texts in one style, the very text is kept; else it is read as drafts are.
    """
    source, target = FORMS[ask.about(region).form], FORMS[ask.form]
    text = source.body(text)
    if source is target and not source.has_boxes:
        return [text]
    if not source.has_boxes and source.style == target.style:
        return [target.element(region, text, draft.size, size)]
    updated = replace(region, drafts=[source.draft(text, region.label)])
    return target.texts(updated, draft.size, size)


def page_texts(pieces: Sequence[Piece], form: str, place: int = 0) -> list[str]:
    """Returns each piece's draft at `place`, or its last, with what the target writes around."""
    target = FORMS[form]
    texts = [piece.texts[min(place, len(piece.texts) - 1)] for piece in pieces]
    for number, (piece, following) in enumerate(pairwise(pieces)):
        texts[number] += target.between(piece.region, following.region)
    if pieces:
        texts[0] = target.start(pieces[0].region) + texts[0]
        texts[-1] += target.end(pieces[-1].region)
    return texts


def page_drafts(tokenizer: Any, pieces: Sequence[Piece], form: str, eos: Ids) -> list[list[Ids]]:
    """Returns token ids of the drafts of each region of a page: alternatives, each once.

    A tokenizer joins a full stop to the line feeds behind it, or marks a word that begins a line,
    so that a region's tokens depend on what stands around it. The page is therefore put together,
    turned into tokens as a whole, and cut where regions begin. Behind the last one the target is
    expected to end.

    Args:
        eos: ids that end a text; the first is expected.
    """
    drafts: list[list[Ids]] = [[] for _ in pieces]
    for place in range(max((len(piece.texts) for piece in pieces), default=0)):
        rows = cut(tokenizer, page_texts(pieces, form, place))
        rows[-1] = rows[-1] + eos[:1]
        for ids, piece, each in zip(rows, pieces, drafts, strict=True):
            if ids and place < len(piece.texts) and ids not in each:
                each.append(ids)
    return [each for each in drafts if each]


def region_drafts(tokenizer: Any, piece: Piece, eos: Ids) -> list[Ids]:
    """Returns token ids of a region's drafts, as the target writes them about its crop alone."""
    rows = (cut(tokenizer, [text])[0] for text in piece.texts)
    return [[*ids, *eos[:1]] for ids in rows if ids]


def cut(tokenizer: Any, texts: Sequence[str]) -> list[Ids]:
    """Returns tokens of texts that stand one behind the other, each with that where it begins."""
    offsets = offsets_of(tokenizer, "".join(texts))
    if offsets is None:  # a tokenizer that can't say where its tokens stand
        return [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    starts = [0, *accumulate(len(text) for text in texts[:-1])]
    rows: list[Ids] = [[] for _ in texts]
    for token, begin in zip(*offsets, strict=True):
        rows[bisect_right(starts, begin) - 1].append(token)
    return rows


def offsets_of(tokenizer: Any, text: str) -> tuple[Ids, list[int]] | None:
    """Returns token ids of a text and where each begins; `None` if the tokenizer can't tell."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(encoding["input_ids"]), [begin for begin, _ in encoding["offset_mapping"]]


def decoded(tokenizer: Any, tokens: Sequence[int], form: str, eos: Ids) -> str:
    """Returns the text of tokens, without those that end it; tags of the form are kept."""
    if not FORMS[form].is_special:
        return str(tokenizer.decode(tokens, skip_special_tokens=True))
    names = ("pad_token_id", "bos_token_id")
    ends = {*eos, *(getattr(tokenizer, name, None) for name in names)}
    visible = [token for token in tokens if token not in ends]
    return str(tokenizer.decode(visible, skip_special_tokens=False))
