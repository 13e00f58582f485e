"""`DoclingDocument`, through docling-core's own classes: what docling's tools and chunkers read, of
which docling-core makes HTML, too.

Boxes are in pixels of the pages' pictures, from the top left, as the sizes of the pages are. An
item that nobody knows the box of has that of its page.
"""

from __future__ import annotations

import html
import json
import mimetypes
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from docling_core.transforms.serializer.html import HTMLDocSerializer, HTMLParams
from docling_core.types import doc as docling
from docling_core.types.doc.document import DocumentOrigin
from docling_core.types.doc.utils import parse_otsl_table_content

from ....documents.docling_items import LESS
from ....documents.regions import Label, Size, clipped
from ....documents.serialise import BULLET, FENCE, NUMBER, bare_formula, items
from ....documents.tables import read_table, to_otsl
from .figures import crop_box
from .joined_pages import BlockPart, DocumentBlock, DocumentPage


def document(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    made = to_docling(pages, info)
    yield json.dumps(made.export_to_dict(), ensure_ascii=False).encode() + b"\n"


HEAD = (
    "<head>\n"
    # A model's output is displayed, never executed: no scripts, and nothing from elsewhere.
    '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src 'self' file:\">\n"
    "<style>body{{max-width:50em;margin:2em auto;font-family:serif}}img{{max-width:100%}}"
    "table{{border-collapse:collapse}}td,th{{border:1px solid #999;padding:.2em .5em}}</style>\n"
    "<title>{}</title>\n</head>"
)

RAISED = re.compile("&lt;(/?su[bp])&gt;")
"""Superscripts and subscripts, of which docling-core makes texts."""


def html_document(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields a document as HTML by docling-core, page headers and footers included."""
    params = HTMLParams(
        layers=set(docling.ContentLayer),
        image_mode=docling.ImageRefMode.REFERENCED,
        html_head=HEAD.format(html.escape(info["source"])),
    )
    serializer = HTMLDocSerializer(doc=to_docling(pages, info), params=params)
    yield RAISED.sub(r"<\1>", serializer.serialize().text).encode() + b"\n"


def to_docling(pages: Iterable[DocumentPage], info: dict[str, Any]) -> docling.DoclingDocument:
    """Returns a document out of its pages.

    Args:
        info: `source` and `input_hash` of the file.
    """
    place = PurePosixPath(info["source"])
    kind = mimetypes.guess_type(place.name)[0] or "application/pdf"
    origin = DocumentOrigin(
        mimetype=kind, filename=place.name, binary_hash=int(info["input_hash"] or "0", 16) % 2**64
    )
    made = docling.DoclingDocument(name=place.stem, origin=origin)
    whole = list(pages)  # a block may go on on a later page
    for page in whole:
        width, height = page.parsed.size
        made.add_page(page_no=page.parsed.number, size=docling.Size(width=width, height=height))
    writer = _Writer(made, place.name, {page.parsed.number: page.parsed.size for page in whole})
    for page in whole:
        writer.page(page)
    return made


HASHES = re.compile(r"^#{1,6}\s+")

TEXTS: dict[str, str] = {
    Label.CAPTION: "caption", Label.FOOTNOTE: "footnote", Label.PAGE_HEADER: "page_header",
    Label.PAGE_FOOTER: "page_footer",
}  # fmt: skip
"""Docling's names of texts that are no plain ones."""


class _Writer:
    """Adds blocks to a document.

    Args:
        made: the document.
        name: of its file, beside which the pictures of its figures are.
        sizes: of its pages, by number.
    """

    def __init__(self, made: docling.DoclingDocument, name: str, sizes: Mapping[int, Size]) -> None:
        self.made, self.name, self.sizes = made, name, sizes
        self.list: docling.NodeItem | None = None

    def page(self, page: DocumentPage) -> None:
        captions = captions_of(page.blocks)
        for place, block in enumerate(page.blocks):
            if place not in captions.values():
                item = self.block(block)
                if place in captions:
                    self.caption(item, page.blocks[captions[place]])
        text = page.parsed.markdown.strip()
        if not page.parsed.regions and text:  # a page of which only the text is known
            self.text("text", text, [BlockPart(page.parsed.number, None, 0, len(text))])

    def block(self, block: DocumentBlock) -> Any:
        if block.label == Label.LIST_ITEM:
            return self.items(block)
        if block.label not in (Label.PAGE_HEADER, Label.PAGE_FOOTER, Label.FOOTNOTE):
            self.list = None  # lists go on across these
        if block.label == Label.TABLE:
            return self.table(block)
        if block.label == Label.PICTURE:
            return self.picture(block)
        if block.label == Label.FORMULA:
            text = bare_formula(block.text)
            return self.put(self.made.add_formula(text=text, orig=block.text), block.parts)
        if block.label in (Label.TITLE, Label.SECTION_HEADER):
            return self.heading(block)
        if block.text.startswith(FENCE):
            return self.code(block)
        text = block.text.strip()
        if block.label in (Label.PAGE_HEADER, Label.PAGE_FOOTER):
            text = HASHES.sub("", text)
        return self.text(TEXTS.get(block.label, "text"), text, block.parts)

    def text(self, label: str, text: str, parts: Sequence[BlockPart], parent: Any = None) -> Any:
        layer = docling.ContentLayer.FURNITURE if label.startswith("page_") else None
        item = self.made.add_text(
            label=docling.DocItemLabel(label), text=text, parent=parent, content_layer=layer
        )
        return self.put(item, parts)

    def heading(self, block: DocumentBlock) -> Any:
        text = HASHES.sub("", block.text.strip())
        if block.label == Label.TITLE:
            return self.put(self.made.add_title(text=text, orig=block.text), block.parts)
        # Level 1 is written as '##' there: the document's title is above it.
        level = max((block.level or 2) - 1, 1)
        item = self.made.add_heading(text=text, orig=block.text, level=level)
        return self.put(item, block.parts)

    def code(self, block: DocumentBlock) -> Any:
        lines = block.text.strip().split("\n")
        inner = lines[1:-1] if lines[-1].strip() == FENCE else lines[1:]
        name = lines[0].strip().lstrip("`").strip().lower()
        languages = {entry.value.lower(): entry for entry in docling.CodeLanguageLabel}
        item = self.made.add_code(
            text="\n".join(inner), orig=block.text, code_language=languages.get(name)
        )
        return self.put(item, block.parts)

    def items(self, block: DocumentBlock) -> Any:
        if self.list is None:
            self.list = self.made.add_list_group()
        item = None
        for line in items(block.text).splitlines():
            number, bullet = NUMBER.match(line), BULLET.match(line)
            mark = number or bullet
            text = line[mark.end() :] if mark else line
            marker = number[0].strip() if number else "-"
            item = self.made.add_list_item(
                text=text, orig=line, enumerated=bool(number), marker=marker, parent=self.list
            )
            parts = [BlockPart(part.page, part.bbox, 0, len(text)) for part in block.parts[:1]]
            self.put(item, parts if "\n" in block.text.strip() else block.parts)
        return item

    def table(self, block: DocumentBlock) -> Any:
        item = self.put(self.made.add_table(data=table_data(block.text)), block.parts)
        item.image = self.image(block)
        return item

    def picture(self, block: DocumentBlock) -> Any:
        item = self.put(self.made.add_picture(image=self.image(block)), block.parts)
        if any(len(row) > 1 for row in read_table(block.text)):
            chart = docling.TabularChartMetaField(chart_data=table_data(block.text))
            item.meta = docling.PictureMeta(tabular_chart=chart)
        elif block.text.strip():
            self.text("text", block.text.strip(), block.parts, parent=item)
        return item

    def caption(self, item: Any, block: DocumentBlock) -> None:
        caption_item = self.text("caption", block.text.strip(), block.parts, parent=item)
        item.captions.append(caption_item.get_ref())

    def image(self, block: DocumentBlock) -> Any:
        """Returns the picture that was cut out of the page, if one was."""
        first = block.parts[0]
        box = crop_box(first.bbox, self.sizes[first.page])
        if not block.picture or box is None:
            return None
        size = docling.Size(width=box[2] - box[0], height=box[3] - box[1])
        # A path and no address: docling opens it.
        path = Path(self.name, block.picture)
        return docling.ImageRef(mimetype="image/png", dpi=72, size=size, uri=path)

    def put(self, item: Any, parts: Sequence[BlockPart]) -> Any:
        """Returns an item with the places where it stands."""
        limit = len(getattr(item, "text", ""))
        for part in parts:
            size = self.sizes[part.page]
            left, top, right, bottom = clipped(part.bbox or (0.0, 0.0, *size), *size)
            box = docling.BoundingBox(
                l=left, t=top, r=right, b=bottom, coord_origin=docling.CoordOrigin.TOPLEFT
            )
            span = min(part.start, limit), min(part.end, limit)
            item.prov.append(docling.ProvenanceItem(page_no=part.page, bbox=box, charspan=span))
        return item


def table_data(text: str) -> docling.TableData:
    """Returns cells with their places; the first row is the head, more of them if HTML says so."""
    marked = re.findall(r"<tr\b.*?(?=<tr\b|$)", text, re.IGNORECASE | re.DOTALL)
    heads = max(1, sum(1 for _ in takewhile(lambda row: "<th" in row.lower(), marked)))
    rows = read_table(text)
    rows = [[replace(cell, text=cell.text.replace("<", LESS)) for cell in row] for row in rows]
    data = parse_otsl_table_content(to_otsl(rows))
    for cell in data.table_cells:
        cell.text = cell.text.replace(LESS, "<")
        cell.column_header = cell.start_row_offset_idx < heads
    return data


def captions_of(blocks: Sequence[DocumentBlock]) -> dict[int, int]:
    """Returns places of captions by that of the table or picture that they stand beside.

    One that says it is a table's belongs to the table below it, else to that above; any other one
    to the picture above it, else to that below, else to a table.
    """
    captions: dict[int, int] = {}
    for place, block in enumerate(blocks):
        if block.label != Label.CAPTION:
            continue
        sides, kinds = (place - 1, place + 1), (Label.PICTURE, Label.TABLE)
        if block.text.lower().lstrip("*_ ").startswith("tab"):
            sides, kinds = (place + 1, place - 1), (Label.TABLE, Label.PICTURE)
        free = [side for side in sides if 0 <= side < len(blocks) and side not in captions]
        near = [side for kind in kinds for side in free if blocks[side].label == kind]
        if near:
            captions[near[0]] = place
    return captions
