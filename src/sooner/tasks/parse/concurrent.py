"""`ConcurrentParser`: many pages under way at once, which share the rounds of one engine."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...checks import check_whole
from ...documents import Page, PageDraft
from ...engine.memory import ON_CPUS, free_bytes, gpus_of, manager
from ...engine.scheduler import Engine
from ...errors import SoonerError
from ...methods import HSD, Autoregressive, Method
from ...methods.aligned.alignment import Experience
from ...models import adapt
from ..loading import ModelPair
from ..prompting import max_positions
from .engine_queue import CROPS, EngineQueue, SharedDecoder
from .parser import PageParser
from .result import ParsedPage
from .settings import ParseSettings

MAX_PAGES = 16
"""Pages under way unless more are asked for."""

SHARE = 0.8
"""The share of a GPU that weights, keys and values may take; pictures and forwards need the
rest.
"""

TYPICAL = 4096
"""Tokens of a page, prompt and text, of which a default goes out. Where pages take more, the last
ones make room and are prefilled again later."""

PROMPT = 16384
"""Tokens that a page's prompt is left at most. One with more is decoded alone."""


class ConcurrentParser:
    """Parses many pages at once over one engine; the text of each is what `PageParser` gives.

    A page is the same coroutine (`PageParser.parse`), which takes turns with others': crops of
    stage 1 and the page of stage 2 are requests of an engine, whose rows join and leave. So rounds
    are shared by pages, and by documents, and nothing waits for the slowest page.

    Where memory is short, the pages that began last make room and go on later; only what runs out
    of memory with nothing beside it is tried with less (`PageParser`). A page's seconds are its
    own: those of its inputs, its prefills, and its share of the rounds, each of which is divided by
    the rows that it decoded. `timeout` and what is learnt of costs go by these.

    Args:
        pair: the model, see `load_parser`.
        settings: how.
        pages_in_flight: pages under way at once; by default as many as memory suffices for, see
            `engine_room`. Others wait.
        has_drafts: pages come with drafts. Without, rows are decoded plainly.

    Attributes:
        parser: one page at a time, with the same settings; not to be called meanwhile.
        pages_in_flight: as above.

    Raises:
        SoonerError: as `PageParser`; there is no memory for a page.
    """

    def __init__(
        self,
        pair: ModelPair,
        settings: ParseSettings | None = None,
        *,
        pages_in_flight: int | None = None,
        has_drafts: bool = True,
    ) -> None:
        self.parser = PageParser(pair, settings)
        self.ask, self.settings = self.parser.ask, self.parser.settings
        self.has_drafts = has_drafts
        model = pair.target.model
        method = _method(self.settings, has_drafts, self.parser.experience)
        room = engine_room(model, method, self.settings, pages_in_flight)
        self.pages_in_flight, rows, pages = room
        self.engine = Engine(model, method, max_rows=rows, pages=pages, prefix_caching=False)
        self._queue = EngineQueue(self.engine, method, set(self.parser.eos))
        self._numbers = itertools.count()
        self._is_closed = False
        # Tokenizers and processors are for one thread: all pages' own work is done in this one.
        self._work = ThreadPoolExecutor(1, "pages")
        self._slots = asyncio.Semaphore(self.pages_in_flight)

    async def parse(self, page: Page, draft: PageDraft | None = None) -> ParsedPage:
        """Parse a page beside others, once fewer than `pages_in_flight` are under way.

        To cancel it takes the page's rows out of the engine.

        Args:
            page, draft: as `PageParser` takes them, which raises the same.

        Raises:
            SoonerError: the parser is closed, or was made for pages without drafts.
        """
        if self._is_closed:
            raise SoonerError("the parser is closed; make another one")
        if draft is not None and not self.has_drafts:
            raise SoonerError("a page has a draft, but the parser was made with has_drafts=False")
        decoder = SharedDecoder(self._queue, self._work, float(next(self._numbers)))
        async with self._slots:
            return await self.parser.parse(page, draft, decoder)

    def close(self) -> None:
        """End all pages that are under way, with an error each, and the threads."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.close()
            self._work.shutdown()

    def __enter__(self) -> ConcurrentParser:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def engine_room(
    model: Any, method: Method, settings: ParseSettings, requested: int | None = None
) -> tuple[int, int, int]:
    """Returns documents' pages that are under way at once; rows that decode together, crops of
    stage 1 among them; and pages of the engine's memory, each of 256 tokens.

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
    return requested, rows, min(pages, rows * each)


def page_parser(
    pair: ModelPair,
    settings: ParseSettings,
    pages_in_flight: int | None = None,
    has_drafts: bool = True,
) -> PageParser | ConcurrentParser:
    """Returns what parses so many pages at once; one is `PageParser`'s business. Those with a
    sparse prefill are decoded one at a time anyway, unless more are asked for.

    Raises:
        SoonerError: as `ConcurrentParser`; fewer pages than 1.
    """
    if pages_in_flight is None:
        method, model = _method(settings, has_drafts), pair.target.model
        is_sparse = settings.prefill is not None
        pages_in_flight = 1 if is_sparse else engine_room(model, method, settings)[0]
    check_whole("pages_in_flight", pages_in_flight)
    if pages_in_flight == 1:
        return PageParser(pair, settings)
    return ConcurrentParser(pair, settings, pages_in_flight=pages_in_flight, has_drafts=has_drafts)


def _method(
    settings: ParseSettings, has_drafts: bool, experience: Experience | None = None
) -> Method:
    """Returns the method of an engine whose requests bring their drafts."""
    if not has_drafts:
        return Autoregressive()
    return HSD([[]], **settings.verification(experience))
