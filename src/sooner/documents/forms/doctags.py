"""DocTags, as SmolDocling and granite-docling write them: tags with boxes on a grid of 500.

Source: docling-core's serializer of DocTags (its tokens, their order and its line feeds), and
Nassar et al., *SmolDocling*, 2025, section 3.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

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
from ..tables import OTSL, is_otsl, read_table, to_html, to_otsl
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

AROUND = ("doctag", "ordered_list", "unordered_list", "group", "form", "key_value_region")
"""Tags around others, which have no text of their own."""

INLINE = {"text": "{}", "formula": "${}$", "code": "`{}`"}
"""Parts of one text, below `inline`, in Markdown."""

IGNORED = re.compile(r"page_break|end_of_utterance|link_\d+")
"""Tags without a text: between pages, behind an answer, and from a key to its value."""

PAIR = re.compile(r"(?:key|value)_\d+")
"""Keys and values of a form, which are texts."""

HOLDERS = ("otsl", "table", "picture", "chart", "code", "document_index")
"""Elements that others stand in, a caption as a rule."""

LEVELS = 5

TAG = re.compile(r"<(/?)([a-zA-Z_][\w+#-]*)>")

PLACE = re.compile(r"loc_(\d+)")

CLASS = re.compile(r"</?[a-z_]+>")

LANGUAGE = re.compile(r"\s*<_([^<>]*)_>")

REST = re.compile(r"</?[\w]*$")
"""A tag that was cut off."""


@dataclass(eq=False)
class _Open:
    """An element that has begun."""

    tag: str
    order: int
    places: list[int] = field(default_factory=list)
    text: str = ""

    def append(self, part: str) -> None:
        """A part of its text behind a blank, where a sentence has one."""
        before = self.text.rstrip()
        joined = not before or before.endswith("(") or part[:1] in tuple(".,;:!?)")
        self.text = f"{before}{part}" if joined else f"{before} {part}"


class DocTags(PageForm):
    """The form that writes elements in tags with their boxes, tables in OTSL, formulas in LaTeX
    without dollars.

    Attributes:
        root: name of the element around a page.
        line: what stands between two elements.
    """

    root, line = "doctag", "\n"
    frame = (SIDE, SIDE)
    has_boxes = True
    is_special = True
    fences = ()

    def texts(self, region: Region, size: Size, seen: Size | None = None) -> list[str]:
        drafts = region.drafts or [""] * (region.label == PICTURE)
        texts = (self.element(region, draft, size, seen) for draft in drafts)
        return [text for text in dict.fromkeys(texts) if text]

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
        return f"<{self.root}>{self.opened(_list_of(first))}"

    def between(self, region: Region, following: Region) -> str:
        before, after = _list_of(region), _list_of(following)
        if before == after:
            return self.line
        return f"{self.line}{self.closed(before)}{self.opened(after)}"

    def end(self, last: Region) -> str:
        return f"{self.line}{self.closed(_list_of(last))}</{self.root}>"

    def opened(self, name: str) -> str:
        """Returns the tag of a list, `ordered_list` or `unordered_list`; of none if its name is
        empty.
        """
        return f"<{name}>" if name else ""

    def closed(self, name: str) -> str:
        """Returns what is written behind a list's last item."""
        return f"</{name}>\n" if name else ""

    def read(self, text: str) -> FormAnswer:
        """Returns elements, those that were not closed included.

        Captions in a table or picture follow it; items of a list get their bullet or number.
        """
        reader = _Reader()
        reader.feed(text)
        entries = sorted(reader.entries, key=lambda item: item[0])
        usable = [item for item in entries if item[1].drafts or item[1].bbox is not None]
        regions = [
            replace(region, order=order, drafts=[self.restored(item) for item in region.drafts])
            for order, (_, region, _) in enumerate(usable)
        ]
        written = [self.restored(text) for *_, text in usable]
        return FormAnswer(regions, written, reader.is_broken)

    def restored(self, text: str) -> str:
        """Returns a text as it stood in the answer."""
        return text


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


@dataclass
class _List:
    """A list that has begun, and how many of its items have no mark of their own."""

    name: str
    items: int = 0


class _Reader:
    """Reads tags in turn; `entries` has the place, the region and the text of each element.

    Attributes:
        open: elements that have begun, the inner ones last.
        lists: those that have begun, the inner ones last.
        whole: the element that parts of one text belong to, below `inline`.
        ended: items that ended where a list below them began.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[int, Region, str]] = []
        self.is_broken = False
        self.open: list[_Open] = []
        self.count = self.ended = 0
        self.lists: list[_List] = []
        self.whole: _Open | None = None

    def feed(self, text: str) -> None:
        at = 0
        for match in TAG.finditer(text):
            self._words(text[at : match.start()])
            self._tag(match)
            at = match.end()
        self._words(REST.sub("", text[at:]))
        self.is_broken = self.is_broken or bool(self.open)
        while self.open:
            self._close()

    def _words(self, text: str) -> None:
        if self.open and self.open[-1] is self.whole:
            if text.strip():
                self.whole.append(text.strip())
        elif self.open:
            self.open[-1].text += text
        elif text.strip():  # outside of all elements
            self.is_broken = True
            self.entries.append((self.count, Region(None, drafts=[text.strip()]), text.strip()))
            self.count += 1

    def _tag(self, match: re.Match[str]) -> None:
        closes, name = bool(match[1]), match[2]
        place = PLACE.fullmatch(name)
        if place is not None:
            if self.open:
                self.open[-1].places.append(int(place[1]))
        elif IGNORED.fullmatch(name):
            return
        elif name in AROUND:
            self._around(name, closes)
        elif name == "inline":
            self._inline(closes)
        elif PAIR.fullmatch(name):
            self._end(name) if closes else self._begin(name)
        elif name not in LABELS or (OTSL.fullmatch(match[0]) and self.open):
            self._words(match[0])
        elif closes:
            self._end(name)
        else:
            self._begin(name)

    def _around(self, name: str, closes: bool) -> None:
        is_list = name.endswith("_list")
        if is_list and not closes and self.open and self.open[-1].tag == "list_item":
            self.ended += 1
            self._close()  # its own text ends where the list below it begins
        elif is_list and not closes and not self.ended:
            self.lists.clear()
        self._unclosed()
        if is_list and not closes:
            self.lists.append(_List(name))
        elif is_list and self.lists:
            self.lists.pop()

    def _inline(self, closes: bool) -> None:
        """One text in parts: of the element that has begun, else a text of its own."""
        if not closes:
            if not self.open or self.open[-1].tag in HOLDERS:
                self.open.append(_Open("inline", self.count))
                self.count += 1
            self.whole = self.open[-1]
            return
        while self.whole in self.open and self.open[-1] is not self.whole:
            self.is_broken = True
            self._close()
        if self.whole in self.open and self.whole.tag == "inline":
            self._close()
        self.whole = None

    def _unclosed(self) -> None:
        """Elements that were never closed end here."""
        while self.open and self.open[-1].tag not in HOLDERS:
            self.is_broken = True
            self._close()

    def _begin(self, name: str) -> None:
        if self.whole is None or self.open[-1] is not self.whole or name not in INLINE:
            self._unclosed()
        self.open.append(_Open(name, self.count))
        self.count += 1

    def _end(self, name: str) -> None:
        if (
            name == "list_item"
            and self.ended
            and name not in [element.tag for element in self.open]
        ):
            self.ended -= 1
            return
        if name not in [element.tag for element in self.open]:
            self.is_broken = True
            return
        while self.open[-1].tag != name:
            self.is_broken = True
            self._close()
        self._close()

    def _close(self) -> None:
        element = self.open.pop()
        if element is self.whole:
            self.whole = None
        elif self.open and self.open[-1] is self.whole:
            text = LANGUAGE.sub("", element.text).strip()
            if text:
                self.whole.append(INLINE[element.tag].format(text))
            return
        label, text = LABELS.get(element.tag, TEXT), element.text.strip()
        self.is_broken = self.is_broken or len(element.places) % 4 != 0
        level = 1 if label == TITLE else 0
        if element.tag.startswith(HEADING):
            level = int(element.tag.removeprefix(HEADING)) + 1
        drafts = [draft] if (draft := self._draft(element, label, text)) else []
        if drafts or element.tag != "list_item":  # an item may hold another list, and nothing else
            self.entries.append(
                (element.order, Region(_box(element.places), label, 0, drafts, level), text)
            )

    def _draft(self, element: _Open, label: str, text: str) -> str:
        if label in (TABLE, PICTURE):
            return to_html(read_table(text)) if is_otsl(text) else stripped(CLASS.sub("", text))
        if label == LIST_ITEM:
            if not text or BULLET.match(text) or NUMBER.match(text):
                return text
            if not self.lists or self.lists[-1].name != "ordered_list":
                return f"- {text}"
            self.lists[-1].items += 1
            return f"{self.lists[-1].items}. {text}"
        if element.tag == "code":
            match = LANGUAGE.match(element.text)
            name = "" if match is None or match[1] == "unknown" else match[1].lower()
            return f"{FENCE}{name}\n{LANGUAGE.sub('', element.text, 1).strip(chr(10))}\n{FENCE}"
        return text


def _box(places: list[int]) -> Box | None:
    """Around all places of an element: what goes on elsewhere has several."""
    if not places or len(places) % 4:
        return None
    return around(box(places[at : at + 4]) for at in range(0, len(places), 4))
