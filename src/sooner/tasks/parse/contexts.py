"""Drafts as token ids, cut from the tokenised page as the target would write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from ...documents import PageDraft, Region, Style, draft_texts, page_html, texts_of
from ...documents.layout_json import cell_json
from ...documents.regions import FURNITURE, LIST_ITEM
from .forms import FORMS, Target

Ids = list[int]


@dataclass(frozen=True)
class Piece:
    """The drafts of one region, in the target's output format.

    Attributes:
        place: index of the region in the draft's list.
        region: as they found it.
        texts: its drafts, the best first.
        end: what the target writes behind it, if the next region follows.
    """

    place: int
    region: Region
    texts: list[str]
    end: str = "\n\n"


def pieces_of(draft: PageDraft, form: str, size: tuple[int, int] | None = None) -> list[Piece]:
    """Regions with text in an output format, in reading order.

    Args:
        size: width and height in which the target says boxes, if not those of the draft.
    """
    target = FORMS[form]
    pieces = [
        Piece(place, region, texts)
        for place, region in enumerate(draft.regions)
        if (texts := _texts(region, draft, target, size))
    ]
    ends = [_end(a.region, b.region, target) for a, b in pairwise(pieces)]
    return [replace(one, end=end) for one, end in zip(pieces, [*ends, ""], strict=False)]


def with_region_texts(
    pieces: Sequence[Piece],
    heard: Mapping[int, str],
    form: str,
    draft: PageDraft,
    size: tuple[int, int] | None = None,
) -> list[Piece]:
    """The same pieces, with stage 1's text of each in front of its drafts.

    Both are alternatives of one region: a crop may be read worse than it was drafted.

    Args:
        heard: texts by `Piece.place`, in the target's own form but for boxes.
        size: as for `pieces_of`.
    """
    found = []
    for piece in pieces:
        text = heard.get(piece.place)
        if text is not None and FORMS[form] == "layout-json":
            text = cell_json(piece.region, text, draft.size, size)
        if text is not None:
            piece = replace(piece, texts=list(dict.fromkeys([text, *piece.texts])))
        found.append(piece)
    return found


def _texts(
    region: Region, draft: PageDraft, target: Target, size: tuple[int, int] | None
) -> list[str]:
    if target == "html":
        each = (replace(region, drafts=[text]) for text in region.drafts)
        return list(dict.fromkeys(page_html([one]).rstrip("\n") for one in each))
    if target == "layout-json":
        return draft_texts(replace(draft, regions=[region]), "layout-json", size)
    assert isinstance(target, Style)
    if region.label in FURNITURE and not target.furniture:
        return []
    return texts_of(region, target)


def _end(region: Region, following: Region, target: Target) -> str:
    if target == "layout-json":
        return ", "
    together = region.label == following.label == LIST_ITEM
    return "\n" if together or target == "html" else "\n\n"


def start_of(form: str) -> str:
    """What the target writes in front of the first region."""
    return "[" if FORMS[form] == "layout-json" else ""


def end_of(form: str) -> str:
    """What it writes behind the last one."""
    return "]" if FORMS[form] == "layout-json" else ""


def page_drafts(tokenizer: Any, pieces: Sequence[Piece], form: str, eos: Ids) -> list[list[Ids]]:
    """Token ids of the drafts of each region of a page: alternatives, each once.

    A tokenizer joins a full stop to the line feeds behind it, or marks a word that begins a line,
    so that a region's tokens depend on what stands around it. The page is therefore put together,
    turned into tokens as a whole, and cut where regions begin. Behind the last one the target is
    expected to end.

    Args:
        eos: ids that end a text; the first is expected.
    """
    found: list[dict[tuple[int, ...], None]] = [{} for _ in pieces]
    for place in range(max((len(piece.texts) for piece in pieces), default=0)):
        texts = [piece.texts[min(place, len(piece.texts) - 1)] for piece in pieces]
        texts = [text + piece.end for text, piece in zip(texts, pieces, strict=True)]
        texts[0] = start_of(form) + texts[0]
        texts[-1] += end_of(form)
        rows = cut(tokenizer, texts)
        rows[-1] = rows[-1] + eos[:1]
        for ids, piece, each in zip(rows, pieces, found, strict=True):
            if ids and place < len(piece.texts):
                each[tuple(ids)] = None
    return [[list(ids) for ids in each] for each in found if each]


def region_drafts(tokenizer: Any, piece: Piece, eos: Ids) -> list[Ids]:
    """Token ids of a region's drafts, as the target writes them about its crop alone."""
    rows = (cut(tokenizer, [text])[0] for text in piece.texts)
    return [[*ids, *eos[:1]] for ids in rows if ids]


def cut(tokenizer: Any, texts: Sequence[str]) -> list[Ids]:
    """Tokens of texts that stand one behind the other, each with the text that it begins in."""
    starts = [0, *accumulate(len(text) for text in texts)]
    offsets = offsets_of(tokenizer, "".join(texts))
    if offsets is None:  # a tokenizer that can't say where its tokens stand
        return [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    rows: list[Ids] = [[] for _ in texts]
    row = 0
    for token, begin in zip(*offsets, strict=True):
        while row + 1 < len(texts) and begin >= starts[row + 1]:
            row += 1
        rows[row].append(token)
    return rows


def offsets_of(tokenizer: Any, text: str) -> tuple[Ids, list[int]] | None:
    """Token ids of a text and where each begins in it; `None` if the tokenizer can't tell."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    told = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    return list(told["input_ids"]), [begin for begin, _ in told["offset_mapping"]]
