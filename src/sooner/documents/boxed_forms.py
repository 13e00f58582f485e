"""Forms in which models answer with boxes: dots.ocr's JSON, DeepSeek-OCR's tags, DocTags of
docling's models, and Chandra's HTML.

Sources: transformers' documentation of `deepseek_ocr2` (prompts, boxes from 0 to 999) and published
answers (blanks, captions, tables); docling-core's serializer of DocTags (its tokens, their order
and its line feeds), and Nassar et al., *SmolDocling*, 2025, section 3.1; the prompts, scale and
reader of datalab's `chandra` (`prompts.py`, `output.py`).
"""

from __future__ import annotations

import html
import json
import math
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any

from PIL import Image

from ..errors import SoonerError
from .docling_items import LESS, docling_regions
from .forms import FormAnswer, PageForm, stripped
from .pdf import needed
from .regions import HEADINGS, Label, Region, Size, around, box, label_of, resized
from .serialise import DOTS, FENCE, FENCED, HEADING, NUMBER, Style, bare_formula
from .tables import FILLED, LINE, read_table, to_otsl

CELL = re.compile(r'(?=\{\s*"(?:bbox|category|text)"\s*:)|,\s*\{\s*"?\w*"?\s*\Z')
"""Where an element of JSON begins, within whose texts the quotes would be escaped, or the beginning
of one that was cut off."""


class LayoutJson(PageForm):
    """The form that writes one list of `{bbox, category, text}`; boxes are pixels of the picture as
    the model sees it."""

    style = DOTS
    has_boxes = True
    marks = ("[", ", ", "]")

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        cell: dict[str, Any] = {}
        (as_seen,) = resized([region], size, seen or size)
        if as_seen.bbox is not None:
            x0, y0, x1, y1 = as_seen.bbox
            cell["bbox"] = [math.floor(x0), math.floor(y0), math.ceil(x1), math.ceil(y1)]
        cell["category"] = region.label
        if text or region.label != Label.PICTURE:
            cell["text"] = text
        return json.dumps(cell, ensure_ascii=False)

    def read(self, text: str) -> FormAnswer:
        """Returns the elements of an answer.

        One that was cut off, wrapped in a code block, or has broken elements loses only those.
        """
        inner = re.sub(r"^\s*```(?:json)?\s*|\s*```\s*$", "", text)
        try:
            cells, is_repaired = json.loads(inner), False
        except ValueError:
            from json_repair import loads

            parts = (part.rstrip(", \n]\\") for part in CELL.split(inner)[1:])
            cells, is_repaired = list(map(loads, parts)), True
        regions = list(map(_of_cell, _cells(cells)))
        texts = ("".join(region.drafts) for region in regions)
        written = (json.dumps(text, ensure_ascii=False)[1:-1] for text in texts)
        return FormAnswer.of(zip(regions, written, strict=True), is_repaired or not regions)


def _cells(data: Any) -> list[dict[str, Any]]:
    """Returns the elements of an answer; none if it is no list of them."""
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = [data] if "category" in data or "bbox" in data else lists[0] if lists else []
    return [cell for cell in data if isinstance(cell, dict)] if isinstance(data, list) else []


def _of_cell(cell: dict[str, Any]) -> Region:
    """Returns an element; the box of one that ends behind it may be cut off."""
    place = None
    if "category" in cell:
        with suppress(KeyError, SoonerError):
            place = box(cell["bbox"])
    text = cell.get("text")
    drafts = [text] if isinstance(text, str) and text.strip() else []
    return Region(place, label_of(str(cell.get("category", Label.TEXT))), drafts=drafts)


GROUNDED_NAMES: dict[str, str] = {label: label.lower() for label in Label}
GROUNDED_NAMES |= {Label.SECTION_HEADER: "sub_title", Label.LIST_ITEM: "text"}
GROUNDED_NAMES |= {Label.FORMULA: "equation", Label.PICTURE: "image"}
GROUNDED_NAMES |= {Label.PAGE_HEADER: "header", Label.PAGE_FOOTER: "footer"}

OF_A_TABLE = re.compile(r"\s*tab(?:le|\b)|\s*表", re.IGNORECASE)

CENTRE = re.compile(r"</?center>", re.IGNORECASE)

NUMBERS = re.compile(r"\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")

REF = re.compile(r"<\|ref\|>(.*?)<\|/ref\|>[ ]?<\|det\|>(.*?)<\|/det\|>", re.S)
CUT_REF = re.compile(r"<\|ref\|>.*|<\|?(?:/?(?:ref|det)\|?)?$|<\|/?(?:ref|det)\|>", re.S)
"""An element's tag; the beginning of one that was cut off, or a tag that is no element's."""


class Grounding(PageForm):
    """The form whose elements begin with their label and box, and a line feed:
    `<|ref|>text<|/ref|><|det|>[[x0, y0, x1, y1]]<|/det|>`.

    Args:
        style: of the texts.
    """

    frame = (999, 999)
    has_boxes = True
    is_special = True

    def __init__(self, style: Style) -> None:
        self.style = style

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        name, sides = GROUNDED_NAMES[region.label], self.sides(region, size)
        if region.label == Label.CAPTION:
            name = "table_caption" if OF_A_TABLE.match(text) else "image_caption"
            text = text if OF_A_TABLE.match(text) else f"<center>{text} </center>"
        tag = f"<|ref|>{name}<|/ref|><|det|>[{sides or ''}]<|/det|>"
        return f"{tag}\n" + ("\n" if region.label == Label.TABLE else "") + text

    def between(self, region: Region, following: Region) -> str:
        if (region.label, following.label) == (Label.PICTURE, Label.CAPTION):
            return ""
        return "\n\n" if region.label == Label.FORMULA else "  \n\n"

    def read(self, text: str) -> FormAnswer:
        """Returns elements behind tags; text in front of the first one is an element without a box.

        A caption that stands between the tag of a table and its rows, as DeepSeek-OCR writes it,
        gives the rows to the table.
        """
        head, *rest = REF.split(text)
        entries, is_broken = [_grounded("text", "", CUT_REF.sub("", head))], bool(head.strip())
        for name, places, content in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            whole = CUT_REF.sub("", content)
            region, written = _grounded(name, places, whole)
            is_broken |= whole != content or (not region.bbox and bool(places.strip("[] ")))
            before, at = entries[-1][0], written.find("<table")
            is_empty_table = before.label == Label.TABLE and not before.drafts
            if region.label == Label.CAPTION and at >= 0 and is_empty_table:
                entries[-1] = (replace(before, drafts=[stripped(written[at:])]), written[at:])
                region, written = _grounded(name, places, written[:at])
            entries.append((region, written))
        return FormAnswer.of(entries, is_broken)


def _grounded(name: str, places: str, text: str) -> tuple[Region, str]:
    """Returns an element and its text as it stands in the answer."""
    label, draft = label_of(name), stripped(CENTRE.sub("", text))
    if label == Label.FORMULA:
        draft = bare_formula(draft)
    heading = HEADING.match(draft)
    if heading is not None and label == Label.TEXT:
        label = Label.SECTION_HEADER
    level = len(heading[1]) if heading is not None and label in HEADINGS else 0
    boxes = [box(match.groups()) for match in NUMBERS.finditer(places)]
    place = around(boxes) if boxes else None
    return Region(place, label, drafts=[draft] if draft else [], level=level), text.strip()


CHANDRA_NAMES: dict[str, str] = {label: label.title() for label in Label}
CHANDRA_NAMES |= {Label.TITLE: "Section-Header", Label.LIST_ITEM: "List-Group"}
CHANDRA_NAMES |= {Label.FORMULA: "Equation-Block", Label.PICTURE: "Image"}

BLOCK = re.compile(r"<div\b([^>]*\bdata-(?:bbox|label)=[^>]*)>", re.IGNORECASE)
"""How a block begins, which never stands in another one."""

ATTRIBUTES = re.compile(r"""data-(bbox|label)\s*=\s*(["'])(.*?)\2""", re.IGNORECASE)

OPEN_TAG = re.compile(r"<(?:/?[a-z][^<>]*|/)?\Z", re.IGNORECASE)


class Chandra(PageForm):
    """The form that writes a `div` for each block, one after the other, boxes from 0 to 1000."""

    style = Style(tables="html", formulas="bare", headings=False)
    frame = (1000, 1000)
    has_boxes = True
    fences = ("html",)
    marks = ("", "", "")

    def text_of(self, region: Region, draft: str) -> str:
        label, text = region.label, super().text_of(region, draft)
        if label == Label.PICTURE:
            return f'<img alt="{html.escape(text)}"/>'
        if label == Label.TABLE or not text:
            return text
        quoted = html.escape(text, quote=False)
        if label == Label.FORMULA:
            return f'<p><math display="block">{quoted}</math></p>'
        if label == Label.LIST_ITEM:
            lines = quoted.splitlines()
            if all(re.match(r"\d{1,3}\. ", line) for line in lines):
                tag, entries = "ol", [line.partition(" ")[2] for line in lines]
            else:
                tag, entries = "ul", [line.removeprefix("- ") for line in lines]
            return f"<{tag}>{''.join(f'<li>{entry}</li>' for entry in entries)}</{tag}>"
        if label == Label.TEXT and (code := FENCED.fullmatch(quoted)):
            return f"<pre><code>{code[1]}</code></pre>"
        tag = f"h{min(region.heading_level, 5)}" if region.heading_level else "p"
        return "".join(f"<{tag}>{part}</{tag}>" for part in quoted.split("\n\n"))

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        sides = " ".join(map(str, self.sides(region, size)))
        attributes = f' data-bbox="{sides}"' if sides else ""
        return f'<div{attributes} data-label="{CHANDRA_NAMES[region.label]}">{text}</div>'

    def read(self, text: str) -> FormAnswer:
        """Returns blocks, the last one as far as it goes; text outside of them is a block without a
        box.
        """
        whole = OPEN_TAG.sub("", text)
        outside, *blocks = BLOCK.split(whole)
        entries, is_broken = [_of_div({}, outside)], bool(outside.strip()) or whole != text
        for attributes, content in zip(blocks[::2], blocks[1::2], strict=True):
            is_closed = content.count("</div>") > content.count("<div")
            inner, _, rest = content.rpartition("</div>") if is_closed else (content, "", "")
            block = {name.lower(): value for name, _, value in ATTRIBUTES.findall(attributes)}
            entries += [_of_div(block, inner), _of_div({}, rest)]
            is_placed = entries[-2][0].bbox is not None or "bbox" not in block
            is_broken |= not is_closed or bool(rest.strip()) or not is_placed
        return FormAnswer.of(entries, is_broken)


def _of_div(block: dict[str, str], inner: str) -> tuple[Region, str]:
    """Returns a block and its text as it stands in the answer."""
    label, place, level = label_of(block.get("label", "")), None, 0
    with suppress(SoonerError):
        place = box(block.get("bbox", "").split())
    is_table = label == Label.TABLE and "<table" in inner.lower()
    text = inner.strip() if is_table else _plain(inner)
    heading = re.search(r"<h([1-6])\b", inner, re.IGNORECASE)
    if heading and label == Label.SECTION_HEADER:
        level = int(heading[1])
        label = Label.TITLE if level == 1 else label
    if label == Label.FORMULA:
        text = bare_formula(text)
    return Region(place, label, 0, [text] if text else [], level), inner.strip()


MARKS = (
    (r"<math\b[^>]*\bdisplay=.block[^>]*>(.*?)</math>", r"$$\1$$"),
    (r"<math\b[^>]*>(.*?)</math>", r"$\1$"),
    (r"<pre\b[^>]*>(.*?)</pre>", rf"{FENCE}\n\1\n{FENCE}"),
    (r"<img\b[^>]*?\balt=[\"'](.*?)[\"'][^>]*>", r"\1"),
    (r"<br\b[^>]*>", "\n"),
    (r"\s*<li\b[^>]*>", "\n- "),
    (r"\s*</(?:p|h[1-6]|[uo]l|div)>", "\n\n"),
    (r"</?[a-z][^<>]*>", ""),
)
"""What elements of HTML become: formulas in dollars, code in a fence, items of lists, paragraphs;
others are left out."""


def _plain(inner: str) -> str:
    """Returns HTML as a drafter's text, with as much of Markdown as drafts have."""
    for pattern, text in MARKS:
        inner = re.sub(pattern, text, inner, flags=re.IGNORECASE | re.DOTALL)
    return re.sub(r"\n{3,}", "\n\n", stripped(html.unescape(inner)))


DOCTAGS: dict[str, str] = {label: label.lower().replace("-", "_") for label in Label}
DOCTAGS |= {Label.TABLE: "otsl"}

CLOSED = re.compile(
    r"<(/?)(doctag|otsl|picture|chart|code|caption|text|title|formula|footnote|inline|list_item"
    r"|document_index|key_value_region|(?:un)?ordered_list|page_(?:header|footer)"
    r"|(?:key|value)_\d+|checkbox_(?:un)?selected|section_header_level_\d)>"
)
"""Tags that have an end."""

PLACE = re.compile(r"<loc_(\d+)>" * 4)

CUT_TAG, BETWEEN = re.compile(r"</?\w*\Z"), re.compile(r"<(?:page_break|end_of_utterance)>")
"""A tag that was cut off, and marks between elements."""


class DocTags(PageForm):
    """The form that writes elements in tags with their boxes, tables in OTSL, formulas in LaTeX
    without dollars.
    """

    style = Style(tables="otsl", formulas="bare", headings=False)
    frame = (500, 500)
    has_boxes = True
    is_special = True
    fences = ()

    def check(self) -> None:
        needed("docling_core.types.doc", "reading DocTags", "docling")

    def text_of(self, region: Region, draft: str) -> str:
        if region.label == Label.PICTURE:
            return to_otsl(read_table(draft)) if draft.strip() else ""
        head, line, rest = super().text_of(region, draft).partition(f"<{LINE}>")
        return head.replace(f"<{FILLED}>", "<ched>") + line + rest

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        """Returns a draft in its tag; a list with several items becomes as many elements."""
        tag, sides, parts = DOCTAGS[region.label], self.sides(region, size), [text]
        place = "".join(f"<loc_{min(side, self.frame[0] - 1)}>" for side in sides)
        if region.label == Label.SECTION_HEADER:
            tag = f"section_header_level_{min(max(region.heading_level - 1, 1), 5)}"
        elif region.label == Label.PICTURE and text:
            tag = "chart"
        elif region.label == Label.LIST_ITEM:
            parts = [line.partition(" ")[2] for line in text.splitlines()]
        elif region.label == Label.TEXT and (code := FENCED.fullmatch(text)):
            tag, parts = "code", [f"<_unknown_>{code[1]}"]
        return "\n".join(f"<{tag}>{place}{part}</{tag}>" for part in parts)

    def start(self, first: Region) -> str:
        return f"<doctag>{_list_tags(None, first)}"

    def between(self, region: Region, following: Region) -> str:
        return f"\n{_list_tags(region, following)}"

    def end(self, last: Region) -> str:
        return f"\n{_list_tags(last, None)}</doctag>"

    def read(self, text: str) -> FormAnswer:
        """Returns what docling-core reads, elements that were cut off as far as they go."""
        from docling_core.types.doc import DoclingDocument
        from docling_core.types.doc.document import DocTagsDocument, DocTagsPage

        tags, is_whole = _closed(PLACE.sub(_sound, text))
        tags = re.sub(r"<(?![a-z/_])", LESS, tags)
        page = DocTagsPage(tokens=tags, image=Image.new("1", self.frame))  # boxes are its pixels
        try:
            document = DoclingDocument.load_from_doctags(DocTagsDocument(pages=[page]))
            regions = docling_regions(document, 1, self.frame[1])
        except Exception:  # whatever docling-core makes of a table or a form that is none
            regions, is_whole = [Region(None, drafts=[text.strip()])], False
        entries = [(region, "".join(region.drafts)) for region in regions]
        return FormAnswer.of(entries, not is_whole)


def _list_tags(region: Region | None, following: Region | None) -> str:
    """Returns the tags of the lists that end and begin between two regions."""
    before, after = _list_of(region), _list_of(following)
    if before == after:
        return ""
    return (f"</{before}>\n" if before else "") + (f"<{after}>" if after else "")


def _list_of(region: Region | None) -> str:
    """Returns the list that a region's items stand in; empty for none."""
    if region is None or region.label != Label.LIST_ITEM:
        return ""
    is_numbered = any(NUMBER.match(draft.strip()) for draft in region.drafts[:1])
    return "ordered_list" if is_numbered else "unordered_list"


def _sound(place: re.Match[str]) -> str:
    """Returns a place as it is; none without an area, of which docling-core can't cut a picture."""
    x0, y0, x1, y1 = map(int, place.groups())
    return place[0] if x1 > x0 + 1 and y1 > y0 + 1 else ""


def _closed(text: str) -> tuple[str, bool]:
    """Returns DocTags with all elements closed and no text outside, and whether they were so."""
    parts = CLOSED.split(CUT_TAG.sub("", text))
    open_tags, whole, is_whole = list[str](), "", True
    for closes, tag, words in zip(["", *parts[1::3]], ["", *parts[2::3]], parts[::3], strict=True):
        if closes and open_tags[-1:] == [tag]:
            open_tags.pop()
        elif closes:
            is_whole = False
        elif tag:
            open_tags.append(tag)
        whole += f"<{closes}{tag}>" if tag else ""
        is_outside = open_tags in ([], ["doctag"]) and bool(BETWEEN.sub("", words).strip())
        whole += f"<text>{words}</text>" if is_outside else words
        is_whole &= not is_outside
    for tag in reversed(open_tags):
        whole += f"<{LINE}></{tag}>" if tag in ("otsl", "chart") else f"</{tag}>"
    return whole, is_whole and not open_tags
