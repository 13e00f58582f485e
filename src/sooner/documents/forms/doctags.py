"""DocTags, as SmolDocling and granite-docling write them: tags with boxes on a grid of 500.

Source: docling-core's serializer of DocTags (its tokens, their order and its line feeds), and
Nassar et al., *SmolDocling*, 2025, section 3.1.
"""

from __future__ import annotations

import re

from ..regions import (
    CAPTION,
    FOOTNOTE,
    FORMULA,
    LIST_ITEM,
    PAGE_FOOTER,
    PAGE_HEADER,
    PICTURE,
    SECTION_HEADER,
    TABLE,
    TEXT,
    TITLE,
    Box,
    Region,
    Size,
    around,
    box,
)
from ..serialise import BULLET, FENCE, NUMBER, bare_formula, item_texts, reflowed
from ..tables import is_otsl, read_table, to_html, to_otsl
from .base import FormAnswer, PageForm, placed, stripped

SIDE = 500

TAGS = {
    TITLE: "title",
    TEXT: "text",
    LIST_ITEM: "list_item",
    FORMULA: "formula",
    TABLE: "otsl",
    PICTURE: "picture",
    CAPTION: "caption",
    FOOTNOTE: "footnote",
    PAGE_HEADER: "page_header",
    PAGE_FOOTER: "page_footer",
}

HEADING = "section_header_level_"

LABELS = {
    **{tag: label for label, tag in TAGS.items()},
    **{f"{HEADING}{level}": SECTION_HEADER for level in range(6)},
    "code": TEXT,
    "paragraph": TEXT,
    "reference": TEXT,
    "handwritten_text": TEXT,
    "checkbox_selected": TEXT,
    "checkbox_unselected": TEXT,
    "table": TABLE,
    "document_index": TABLE,
    "chart": PICTURE,
}

AROUND = (
    *("doctag", "ordered_list", "unordered_list", "group", "form", "key_value_region"),
    *("page_break", "end_of_utterance"),
)
"""Tags around others and between them, which have no text of their own."""

INLINE = {"text": "{}", "formula": "${}$", "code": "`{}`"}
"""Parts of one text, below `inline`, in Markdown."""

LEVELS = 5

HOLDERS = "otsl|table|picture|chart|code|document_index"
"""Elements that a caption may stand in."""

PAIRS = r"(?:key|value)_\d+"
"""Keys and values of a form, which are texts."""

LEAVES = "|".join([*(tag for tag in LABELS if tag not in HOLDERS.split("|")), PAIRS])

STOPS = "|".join([*(tag for tag in LABELS if tag != "caption"), PAIRS, *AROUND])
"""Tags that begin or end an element, so that the one before them has ended."""

ELEMENT = re.compile(
    r"<inline>(?P<parts>.*?)(?:(?P<end></inline>)|\Z)"
    rf"|<(?P<holder>{HOLDERS})>(?P<content>(?:(?!</?(?:{STOPS})>).)*)(?P<holder_end></(?P=holder)>)?"
    rf"|<(?P<leaf>{LEAVES})>"
    rf"(?P<text>(?:<inline>.*?(?:</inline>|\Z)|(?!</?(?:{STOPS}|caption)>).)*)"
    r"(?P<text_end></(?P=leaf)>)?",
    re.DOTALL,
)

CAPTION_INSIDE = re.compile(r"<caption>(.*?)(?:(</caption>)|\Z)", re.DOTALL)

INLINE_INSIDE = re.compile(r"<inline>(.*?)(?:</inline>|\Z)", re.DOTALL)

PART = re.compile(
    r"<(text|formula|code)>(.*?)(?:</\1>|\Z)|((?:(?!<(?:text|formula|code)>).)+)", re.DOTALL
)

OUTSIDE = re.compile(rf"<(/?)({LEAVES}|{HOLDERS}|{'|'.join(AROUND)})>")

PLACE = re.compile(r"<loc_(\d+)>")

CLASS = re.compile(r"</?[a-z_]+>")

LANGUAGE = re.compile(r"\s*<_([^<>]*)_>")

REST = re.compile(r"<link_\d+>|</?\w*\Z")
"""What binds a key to its value, and a tag that was cut off."""


class DocTags(PageForm):
    """The form that writes elements in tags with their boxes, tables in OTSL, formulas in LaTeX
    without dollars.
    """

    frame = (SIDE, SIDE)
    has_boxes = True
    is_special = True
    fences = ()

    def text_of(self, region: Region, draft: str) -> str:
        return draft

    def element(self, region: Region, text: str, size: Size, seen: Size | None = None) -> str:
        """Returns a draft in its tag; a list with several items becomes as many elements."""
        place = ""
        if region.bbox is not None and 0 not in size:
            sides = placed(region.bbox, size, (SIDE, SIDE), SIDE - 1)
            place = "".join(f"<loc_{side}>" for side in sides)
        tag = _tag(region, text)
        parts = [f"<{tag}>{place}{part}</{tag}>" for part in parts_of(region, text)]
        return "\n".join(parts)

    def start(self, first: Region) -> str:
        return f"<doctag>{_opened(_list_of(first))}"

    def between(self, region: Region, following: Region) -> str:
        before, after = _list_of(region), _list_of(following)
        return "\n" if before == after else f"\n{_closed(before)}{_opened(after)}"

    def end(self, last: Region) -> str:
        return f"\n{_closed(_list_of(last))}</doctag>"

    def read(self, text: str) -> FormAnswer:
        """Returns elements, those that were not closed included.

        Captions in a table or picture follow it; items of a list get their bullet or number.
        """
        reader = _Reader()
        text = REST.sub("", text)
        at = 0
        for match in ELEMENT.finditer(text):
            reader.outside(text[at : match.start()])
            at = match.end()
            reader.element(match, text[at:])
        reader.outside(text[at:])
        return FormAnswer.of(reader.entries, reader.is_broken)


def _tag(region: Region, text: str) -> str:
    if region.label == SECTION_HEADER:
        return f"{HEADING}{min(max((region.level or 2) - 1, 1), LEVELS)}"
    if region.label == TEXT and text.lstrip().startswith(FENCE):
        return "code"
    return "chart" if region.label == PICTURE and text.strip() else TAGS[region.label]


def parts_of(region: Region, text: str) -> list[str]:
    """Returns the text as it stands in the tag; of several items, of each."""
    label = region.label
    if label == PICTURE:
        return [to_otsl(read_table(text)) if text.strip() else ""]
    if label == TABLE:
        table = read_table(text)
        return [to_otsl(table, "ched")] if table else []
    if label == FORMULA:
        return [formula] if (formula := bare_formula(text)) else []
    if label == LIST_ITEM:
        return [part for part in map(_unmarked, item_texts(text)) if part]
    if label in (TITLE, SECTION_HEADER):
        text = text.lstrip("# ")
    if label == TEXT and text.lstrip().startswith(FENCE):
        return [f"<_unknown_>{_code(text)}"]
    return [part] if (part := reflowed(text)) else []


def _unmarked(item: str) -> str:
    mark = BULLET.match(item) or NUMBER.match(item)
    return reflowed(item[mark.end() :] if mark else item)


def _code(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines[1:-1] if lines[-1].strip() == FENCE else lines[1:])


def _list_of(region: Region) -> str:
    """Returns the list that a region's items stand in; empty for none."""
    if region.label != LIST_ITEM:
        return ""
    is_numbered = bool(region.drafts) and NUMBER.match(region.drafts[0].strip()) is not None
    return "ordered_list" if is_numbered else "unordered_list"


def _opened(name: str) -> str:
    return f"<{name}>" if name else ""


def _closed(name: str) -> str:
    return f"</{name}>\n" if name else ""


class _Reader:
    """Collects the elements of an answer.

    Attributes:
        entries: regions, and their texts as they stand in the answer.
        is_broken: something was not closed, was closed twice, or stood outside of all elements.
        lists: items without a mark in the lists that are open; `None` for unordered ones.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Region, str]] = []
        self.is_broken = False
        self.lists: list[int | None] = []

    def outside(self, text: str) -> None:
        """Read what stands between two elements: lists begin and end, all else is lost text."""
        for closes, tag in OUTSIDE.findall(text):
            if tag.endswith("_list"):
                if closes:
                    del self.lists[-1:]
                else:
                    self.lists.append(0 if tag == "ordered_list" else None)
            self.is_broken |= tag not in (*AROUND, "list_item")
        if lost := PLACE.sub("", OUTSIDE.sub("", text)).strip():
            self.is_broken = True
            self.entries.append((Region(None, drafts=[lost]), lost))

    def element(self, match: re.Match[str], rest: str) -> None:
        """Read an element, and those in it.

        Args:
            match: of `ELEMENT`.
            rest: of the answer.
        """
        tag = match["holder"] or match["leaf"] or "inline"
        inner = next(text for text in match.group("content", "text", "parts") if text is not None)
        is_closed = any(match.group("holder_end", "text_end", "end"))
        if tag == "inline":
            inner = f"<inline>{inner}</inline>"
        is_around = tag == "list_item" and rest.startswith(("<ordered_list>", "<unordered_list>"))
        self.is_broken |= not is_closed and not is_around
        captions = CAPTION_INSIDE.findall(inner) if match["holder"] else []
        self._add(tag, CAPTION_INSIDE.sub("", inner) if captions else inner)
        for caption, end in captions:
            self.is_broken |= not end
            self._add("caption", caption)

    def _add(self, tag: str, inner: str) -> None:
        places = [int(number) for number in PLACE.findall(inner)]
        self.is_broken |= len(places) % 4 > 0
        text = INLINE_INSIDE.sub(lambda inline: _sentence(inline[1]), PLACE.sub("", inner)).strip()
        label, draft = LABELS.get(tag, TEXT), text
        level = 1 if label == TITLE else 0
        if tag.startswith(HEADING):
            level = int(tag.removeprefix(HEADING)) + 1
        elif label in (TABLE, PICTURE):
            is_table = is_otsl(text)
            draft = to_html(read_table(text)) if is_table else stripped(CLASS.sub("", text))
        elif tag == "code":
            draft = _fenced(text)
        elif label == LIST_ITEM:
            draft = self._marked(text)
            if not draft:  # it may hold another list, and nothing else
                return
        region = Region(_box(places), label, 0, [draft] if draft else [], level)
        self.entries.append((region, text))

    def _marked(self, text: str) -> str:
        """Returns an item with the bullet or number that it has in its list."""
        if not text or BULLET.match(text) or NUMBER.match(text):
            return text
        count = self.lists[-1] if self.lists else None
        if count is None:
            return f"- {text}"
        self.lists[-1] = count + 1
        return f"{count + 1}. {text}"


def _sentence(inner: str) -> str:
    """Returns the parts below `inline` as a sentence has them."""
    whole = ""
    for tag, inside, plain in PART.findall(inner):
        text = (plain if plain else LANGUAGE.sub("", inside)).strip()
        if text:
            text = INLINE[tag].format(text) if tag else text
            is_joined = not whole or whole.endswith("(") or text[:1] in tuple(".,;:!?)")
            whole += text if is_joined else f" {text}"
    return whole


def _fenced(text: str) -> str:
    match = LANGUAGE.match(text)
    name = "" if match is None or match[1] == "unknown" else match[1].lower()
    code = text if match is None else text[match.end() :]
    return f"{FENCE}{name}\n{code.strip(chr(10))}\n{FENCE}"


def _box(places: list[int]) -> Box | None:
    """Returns the box around all places of an element: what goes on elsewhere has several."""
    if not places or len(places) % 4:
        return None
    return around(box(places[at : at + 4]) for at in range(0, len(places), 4))
