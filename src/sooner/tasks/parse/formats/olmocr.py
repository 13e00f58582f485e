"""JSON lines of documents as olmOCR writes them, which Dolma's tools read.

One line: `id` (SHA-1 of the text), `text`, `source`, `added`, `created`, `metadata`, and
`attributes.pdf_page_numbers`, a list of `[start, end, page]` in letters of the text.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from .... import __version__
from .joined_pages import DocumentPage

SOURCE = "sooner"

BETWEEN = "\n\n"


def document(pages: Iterable[DocumentPage], info: dict[str, Any]) -> Iterator[bytes]:
    """Yields a document's line; nothing if it has no text, as there."""
    text, spans, tokens = "", [], 0
    for page in pages:
        content = page.markdown.strip()
        start = len(text)
        text += f"{content}{BETWEEN}" if content else ""
        spans.append([start, len(text), page.parsed.number])
        tokens += page.parsed.last.tokens
    text = text.removesuffix(BETWEEN)
    spans = [[min(start, len(text)), min(end, len(text)), page] for start, end, page in spans]
    if not text:
        return
    day = info.get("day") or datetime.datetime.now(datetime.UTC).date().isoformat()
    line = {
        "id": hashlib.sha1(text.encode()).hexdigest(),
        "text": text,
        "source": SOURCE,
        "added": day,
        "created": day,
        "metadata": {
            "Source-File": info["source"],
            "sooner-version": __version__,
            "pdf-total-pages": len(spans) + len(info["failed"]),
            "total-output-tokens": tokens,
            "total-fallback-pages": 0,
            "status": info["status"],
            "failed-pages": [entry["page"] for entry in info["failed"]],
        },
        "attributes": {"pdf_page_numbers": spans},
    }
    yield (json.dumps(line, ensure_ascii=False) + "\n").encode()
