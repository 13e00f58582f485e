"""How many pages may be under way at once, and the memory that their engine gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...checks import check_whole
from ...engine.memory import manager
from ...engine.memory.free_memory import ON_CPUS, free_bytes, gpus_of
from ...errors import SoonerError
from ...methods import Method
from ...models import adapt
from ..prompting import max_positions
from .settings import ParseSettings

MAX_PAGES = 16
"""Pages under way unless more are asked for."""

SHARE = 0.8
"""The share of a GPU that weights, keys and values may take; pictures and forwards need the
rest.
"""

CROPS = 8
"""Crops of a page that are one request of the engine, prefilled together."""

TYPICAL = 4096
"""Tokens of a page, prompt and text, of which a default goes out. Where pages take more, the last
ones make room and are prefilled again later."""

PROMPT = 16384
"""Tokens that a page's prompt is left at most. One with more is decoded alone."""


@dataclass(frozen=True)
class EngineRoom:
    """What an engine of several pages is made of.

    Attributes:
        pages_in_flight: documents' pages that are under way at once.
        rows: that decode together, crops of stage 1 among them.
        pages: of its memory, each of 256 tokens.
    """

    pages_in_flight: int
    rows: int
    pages: int


def engine_room(
    model: Any, method: Method, settings: ParseSettings, requested: int | None = None
) -> EngineRoom:
    """Returns the room for so many pages at once.

    Args:
        model: loaded.
        method: of the engine.
        settings: of the pages.
        requested: how many; `None` is as many as a GPU has memory for, 16 at most, and 1 elsewhere.

    Raises:
        SoonerError: fewer than 1, or no memory for a single page.
    """
    adapter, block = adapt(model), method.largest_block()
    length = PROMPT + settings.max_new_tokens
    longest = min(max_positions(model) or length, length)
    each = -(-(longest + block) // manager.PAGE)
    typical = min(each, -(-(TYPICAL + block) // manager.PAGE))
    page_bytes = manager.page_bytes(adapter, method)
    gpus = gpus_of(model)
    free = sum(free_bytes(gpu, SHARE) for gpu in gpus) if gpus else ON_CPUS
    pages = max(free, 0) // page_bytes
    if requested is None:
        requested = min(max(pages // typical, 1), MAX_PAGES) if gpus else 1
    check_whole("pages_in_flight", requested)
    if pages < typical:
        raise SoonerError(
            f"the memory for keys and values is {pages} pages of {manager.PAGE} tokens "
            f"({page_bytes} bytes each), and a document's page takes {typical}; parse one at a "
            "time (--pages-in-flight 1), or use a smaller model"
        )
    rows = requested + (0 if settings.stages == "page" else CROPS)
    return EngineRoom(requested, rows, min(pages, rows * each))
