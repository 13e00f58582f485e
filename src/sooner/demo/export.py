"""A record as an element of a page, or as one file that needs no server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape, unescape
from importlib.resources import files
from string import Template
from typing import Any

from markdown_it import MarkdownIt

TABLE_TAG = re.compile(
    r"&lt;/?(?:table|thead|tbody|tr|td|th)(?: (?:row|col)span=&quot;\d+&quot;)*&gt;"
)
"""Tags of tables, escaped; parsers write tables as HTML."""


def asset(name: str) -> str:
    """Returns the text of a file beside this one."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def rendered(markdown: str) -> str:
    """Returns a page's Markdown as HTML; HTML in it is shown as text, but for tables."""
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    return TABLE_TAG.sub(lambda match: unescape(match[0]), html)


def fragment(record: Mapping[str, Any]) -> str:
    """Returns HTML in which the player shows a record; nothing in it is markup, but for `html` of
    pages, which is made here of their Markdown, whatever the record says."""
    if record.get("kind") == "pages":
        pages = [{**page, "html": rendered(str(page["markdown"]))} for page in record["pages"]]
        record = {**record, "pages": pages}
    data = escape(json.dumps(record, ensure_ascii=False, separators=(",", ":")), quote=True)
    return f'<div class="sooner" data-record="{data}"></div>'


def whole_page(record: Mapping[str, Any]) -> str:
    """Returns an HTML file that shows a record by itself and asks nobody for anything."""
    return Template(asset("alone.html")).substitute(
        title=escape(str(record.get("title", record["kind"]))),
        css=asset("player.css"),
        record=fragment(record),
        player=asset("player.js"),
    )
