"""From what a target said to a page: Markdown, and regions with boxes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...documents import PageDraft, Region, to_markdown
from ...documents.boxes import scaled
from ...documents.layout_json import read_layout_json
from ...documents.regions import Size
from .contexts import offsets_of
from .fences import WRAPPERS, unwrapped
from .forms import FORMS
from .matching import accepted_shares, placed
from .result import ParsedRegion, parsed_region
from .speaking import Said


@dataclass(frozen=True)
class Reading:
    """What a target's answer says.

    Attributes:
        markdown: blocks separated by blank lines.
        regions: in reading order, one draft each: their text.
        written: the same texts as they stand in the answer.
        repaired: the answer was no valid JSON.
    """

    markdown: str
    regions: list[Region]
    written: list[str]
    repaired: bool = False


def read(text: str, form: str, draft: PageDraft, size: Size, seen: Size | None) -> Reading:
    """An answer in a form of `forms.FORMS`; one that is wrapped in a code fence is taken out.

    Args:
        draft: whose regions say where a text without boxes is from.
        size: of the page's picture.
        seen: the size in which boxes are said, if it is not that.
    """
    if FORMS[form] == "layout-json":
        return _layout(text, size, seen)
    text = unwrapped(text, ("html",) if FORMS[form] == "html" else WRAPPERS)
    if FORMS[form] == "html":
        text = "\n\n".join(line for line in text.splitlines() if line.strip())
    regions = placed(text, draft.regions)
    return Reading(f"{text.strip()}\n" if text.strip() else "", regions, _texts(regions))


def _layout(text: str, size: Size, seen: Size | None) -> Reading:
    found = read_layout_json(text)
    regions = [_resized(region, size, seen) for region in found.regions]
    if not regions:  # nothing to be saved: the answer itself is all there is
        return Reading(text.strip(), [], [], bool(text.strip()) and found.repaired)
    escaped = [json.dumps(one, ensure_ascii=False)[1:-1] for one in _texts(regions)]
    style = FORMS["markdown-html"]
    assert not isinstance(style, str)
    return Reading(to_markdown(regions, style), regions, escaped, found.repaired)


def _resized(region: Region, size: Size, seen: Size | None) -> Region:
    if region.bbox is None or seen is None:
        return region
    return replace(region, bbox=scaled(region.bbox, size[0] / seen[0], size[1] / seen[1]))


def _texts(regions: Sequence[Region]) -> list[str]:
    return [region.drafts[0] if region.drafts else "" for region in regions]


def described(
    reading: Reading, said: Said, raw: str, tokenizer: Any, size: Size
) -> list[ParsedRegion]:
    """Regions with boxes of both kinds and the share of each that was drafted.

    Args:
        said: the tokens of `raw`; if a tokenizer makes others of it, shares stay unknown.
    """
    offsets = offsets_of(tokenizer, raw) if said.tokens else None
    shares: list[float | None] = [None] * len(reading.regions)
    if offsets is not None and offsets[0] == said.tokens:
        shares = accepted_shares(reading.written, raw, offsets[1], said.drafted)
    return [
        parsed_region(region, order, size, share)
        for order, (region, share) in enumerate(zip(reading.regions, shares, strict=True))
    ]
