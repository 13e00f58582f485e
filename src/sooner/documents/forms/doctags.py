"""DocTags, as SmolDocling and granite-docling write them: tags with boxes on a grid of 500.

Source: docling-core's serializer of DocTags (its tokens, their order and its line feeds), and
Nassar et al., *SmolDocling*, 2025, section 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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

AROUND = ("doctag", "ordered_list", "unordered_list", "group", "form", "key_value_region")
"""Tags around others, which have no text of their own."""

INLINE = {"text": "{}", "formula": "${}$", "code": "`{}`"}
"""Parts of one text, below `inline`, in Markdown."""

IGNORED = re.compile(r"page_break|end_of_utterance|link_\d+")
"""Tags without a text: between pages, behind an answer, and from a key to its value."""

PAIR = re.compile(r"(?:key|value)_\d+")
"""Keys and values of a form, which are texts."""

HOLDERS = (*AROUND, "otsl", "table", "picture", "chart", "code", "document_index")
"""Elements that others stand in, a caption as a rule."""

LEVELS = 5

TAG = re.compile(r"<(/?)([a-zA-Z_][\w+#-]*)>")

PLACE = re.compile(r"loc_(\d+)")

CLASS = re.compile(r"</?[a-z_]+>")

LANGUAGE = re.compile(r"\s*<_([^<>]*)_>")

REST = re.compile(r"</?[\w]*$")
"""A tag that was cut off."""


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
        tree = self.tree(text)
        return FormAnswer.of(tree.entries(), tree.is_broken)

    def tree(self, text: str) -> Tree:
        """Returns the elements of an answer."""
        tree, at = Tree(), 0
        for match in TAG.finditer(text):
            tree.text(text[at : match.start()])
            at = match.end()
            place = PLACE.fullmatch(match[2])
            if place is not None:
                tree.place(int(place[1]))
            elif match[2] in LABELS or match[2] in AROUND or match[2] == "inline":
                tree.tag(match[2], bool(match[1]))
            elif PAIR.fullmatch(match[2]):
                tree.tag("text", bool(match[1]))
            elif not IGNORED.fullmatch(match[2]):
                tree.text(match[0])
        tree.text(REST.sub("", text[at:]))
        tree.end()
        return tree


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


@dataclass(eq=False)
class _Element:
    """An element, with its texts and the elements in it."""

    tag: str
    places: list[int] = field(default_factory=list)
    inner: list[_Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(part for part in self.inner if isinstance(part, str))

    def may_hold(self, tag: str) -> bool:
        """Returns whether an element with that tag stands in this one, or shows that it ended."""
        if self.tag == "inline":
            return tag in INLINE
        is_nested = self.tag == "list_item" and tag.endswith("_list")
        return self.tag in HOLDERS or is_nested or tag == "inline"

    def entries(self, listing: str = "", number: int = 0) -> Iterator[tuple[Region, str]]:
        """Yields regions of this element and of those in it, and their texts as they stand there.

        Args:
            listing: the tag of the list that it is an item of.
            number: its own number in that list.
        """
        if self.tag in AROUND:
            count = 0
            for part in self.inner:
                if isinstance(part, str):
                    text = part.strip()
                    yield from [(Region(None, drafts=[text]), text)] if text else []
                else:
                    count += part.tag == "list_item" and not part.is_marked
                    yield from part.entries(self.tag, count)
            return
        label = LABELS.get(self.tag, TEXT)
        level = 1 if label == TITLE else 0
        if self.tag.startswith(HEADING):
            level = int(self.tag.removeprefix(HEADING)) + 1
        draft = self._draft(label, listing, number)
        if draft or self.tag != "list_item":  # an item may hold another list, and nothing else
            box_of_it = _box(self.places)
            yield Region(box_of_it, label, 0, [draft] if draft else [], level), self._whole
        for part in self.inner:
            if isinstance(part, _Element) and part.tag != "inline" and self.tag != "inline":
                yield from part.entries()

    @property
    def is_marked(self) -> bool:
        """Whether an item has its bullet or number in its text."""
        return not self._whole or bool(BULLET.match(self._whole) or NUMBER.match(self._whole))

    @property
    def _whole(self) -> str:
        """The text, with the parts below `inline` as a sentence has them."""
        if self.tag != "inline":
            parts = [part for part in self.inner if isinstance(part, str) or part.tag == "inline"]
            return "".join(p if isinstance(p, str) else p._whole for p in parts).strip()
        whole = ""
        for part in self.inner:
            text = part if isinstance(part, str) else LANGUAGE.sub("", part.text)
            if not text.strip():
                continue
            text = text.strip() if isinstance(part, str) else INLINE[part.tag].format(text.strip())
            is_joined = not whole or whole.endswith("(") or text[:1] in tuple(".,;:!?)")
            whole += text if is_joined else f" {text}"
        return whole

    def _draft(self, label: str, listing: str, number: int) -> str:
        text = self._whole
        if label in (TABLE, PICTURE):
            return to_html(read_table(text)) if is_otsl(text) else stripped(CLASS.sub("", text))
        if label == LIST_ITEM and not self.is_marked:
            return f"{number}. {text}" if listing == "ordered_list" else f"- {text}"
        if self.tag == "code":
            match = LANGUAGE.match(self.text)
            name = "" if match is None or match[1] == "unknown" else match[1].lower()
            return f"{FENCE}{name}\n{LANGUAGE.sub('', self.text, 1).strip(chr(10))}\n{FENCE}"
        return text


class Tree:
    """Builds elements out of tags, texts and numbers of boxes in turn.

    Attributes:
        is_broken: something was not closed, was closed twice, or stood outside of all elements.
    """

    def __init__(self) -> None:
        self.is_broken = False
        self._open = [_Element("doctag")]

    def entries(self) -> Iterator[tuple[Region, str]]:
        """Yields regions and their texts as they stand in the answer."""
        return self._open[0].entries()

    def text(self, text: str) -> None:
        if text:
            self._open[-1].inner.append(text)
        self.is_broken |= self._open[-1].tag in AROUND and bool(text.strip())

    def place(self, number: int) -> None:
        """Add one of four numbers of a box; those of `inline` are of the element that it is in."""
        element = self._open[-1]
        if element.tag == "inline" and self._open[-2].tag not in HOLDERS:
            element = self._open[-2]
        element.places.append(number)

    def tag(self, tag: str, closes: bool) -> None:
        """Begin or end an element; `tag` is one of DocTags."""
        if not closes:
            while not self._open[-1].may_hold(tag):
                self._close(is_broken=True)
            element = _Element(tag)
            self._open[-1].inner.append(element)
            self._open.append(element)
        elif tag in [element.tag for element in self._open[1:]]:
            while self._open[-1].tag != tag:
                self._close(is_broken=True)
            self._close()
        else:
            self.is_broken |= tag not in AROUND

    def end(self) -> None:
        """End what is open; pages may be cut off between elements."""
        while len(self._open) > 1:
            self._close(is_broken=self._open[-1].tag not in AROUND)

    def _close(self, is_broken: bool = False) -> None:
        element = self._open.pop()
        is_box = element.tag in AROUND or len(element.places) % 4 == 0
        self.is_broken |= is_broken or not is_box


def _box(places: list[int]) -> Box | None:
    """Around all places of an element: what goes on elsewhere has several."""
    if not places or len(places) % 4:
        return None
    return around(box(places[at : at + 4]) for at in range(0, len(places), 4))
