"""Slots that outlive a batch: memory for the next one, and a draft's part of prefixes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...methods.chain_draft import ChainDrafter
from ...models.hooks import ForwardHooks
from ..attention.block import PAGE
from ..cache import SlotCache
from ..interface import Drafter, Prompt
from ..loop import Decoding, Session
from ..runner import ModelRunner
from .media import MediaItem, VisualFeatures
from .pages import PageName, PagePool, Prefix
from .row_pages import Content, RowPages, fill_pages, read_page

DRAFT_FEATURES = 64 << 20
"""Bytes of pictures and clips, encoded by a draft's tower, that are kept."""


class BatchSlots:
    """What an engine keeps of batches that have ended.

    On CPUs memory that is new costs more than what is written to it: the system gives it page by
    page, as it is touched. So a batch takes over the slots of the one before it, target's and
    draft's, and rows that join it are prefilled in free rows of both.

    Args:
        pool: the engine's pages.
        reuses: whether slots are taken over; where an allocator keeps memory itself they are not.

    Attributes:
        target, draft: of the last batch, unless another one has taken them over.
        prefixes: the draft's part of what cached pages hold.
    """

    def __init__(self, pool: PagePool, reuses: bool) -> None:
        self.pool, self.reuses = pool, reuses
        self.target: SlotCache | None = None
        self.draft: SlotCache | None = None
        self.prefixes = DraftPrefixes(pool)
        self.features = VisualFeatures(DRAFT_FEATURES)

    def keep(self, batch: Decoding) -> None:
        """A batch has ended."""
        draft = _draft_of(batch.drafter)
        self.target = self._reused(batch.session.target.cache, self.target)
        if draft is not None and draft.runner is not None:  # else nothing was drafted in it
            self.draft = self._reused(draft.runner.cache, self.draft)

    def _reused(self, cache: SlotCache, before: SlotCache | None) -> SlotCache | None:
        if not self.reuses:
            return None
        if before is not None and before.borrower is cache:
            return before  # which has more rows
        cache.set_lengths([])
        is_whole = cache.takes_blocks and cache.is_stacked and not cache.approximations
        is_there = all(layer.is_initialized for layer in cache.slot_layers)
        return cache if is_whole and is_there else None

    def settle(self, batch: Decoding) -> None:
        """Let a batch that begins have all rows of the memory that its first ones lie in."""
        target, draft = batch.session.target, _draft_of(batch.drafter)
        pages = target.cache.pages
        if _take_over(target, self.target):
            self.target = None
            if isinstance(pages, RowPages) and isinstance(target.cache.pages, RowPages):
                target.cache.pages.on_leave = pages.on_leave
        if draft is not None and draft.runner is not None and _take_over(draft.runner, self.draft):
            self.draft = None

    def serve(self, session: Session, batch: Decoding | None) -> None:
        """Have a session's draft prefilled where its rows are to decode, without what is known.

        Args:
            session: with its pages.
            batch: the batch that it is to join.
        """
        draft, pages = _draft_of(session.drafter), session.target.cache.pages
        if draft is None or not isinstance(pages, RowPages):
            return
        prefix = pages.rows[0].prefix if len(pages.rows) == 1 else None
        draft.memory = DraftMemory(self, draft, prefix, batch)
        for row in pages.rows:
            row.has_draft = draft.memory.may_share
        known = weakref.ref(draft)  # it holds the pages

        def leave(rows: RowPages, row: int) -> None:
            entry = known()
            if entry is None or entry.runner is None or row not in entry.members:
                return
            if rows.rows[row].has_draft:
                place = entry.members.index(row)
                self.prefixes.keep(entry.runner.cache, place, rows.rows[row].pages)

        pages.on_leave = leave


class DraftMemory:
    """What an engine's memory does for the prompt of one draft; see `ChainDrafter.memory`.

    Args:
        slots: of the engine.
        drafter: whose prompt it is.
        prefix: of the target's prompt.
        beside: the batch that it is to join.
    """

    def __init__(
        self,
        slots: BatchSlots,
        drafter: ChainDrafter,
        prefix: Prefix | None,
        batch: Decoding | None,
    ) -> None:
        self._slots, self._prefix, self._batch = slots, prefix, batch
        self._adapter: Any = drafter.adapter
        self._known: list[Content] = []
        context = drafter.context
        is_single = context.output_ids is None and context.rows.batch == 1
        shares = is_single and not self._adapter.chains_only  # a state is the whole prompt's
        self.may_share = shares and _shows_the_same(drafter.inputs, context.inputs)

    @property
    def lends(self) -> bool:
        return self._slots.reuses

    @property
    def cache(self) -> SlotCache | None:
        """In whose free rows the prompt is to be prefilled."""
        if not self._slots.reuses:
            return None
        batch = self._batch
        draft = None if batch is None or not batch.rows.active else _draft_of(batch.drafter)
        return self._slots.draft if draft is None or draft.runner is None else draft.runner.cache

    @property
    def _covered(self) -> int:
        last = 0 if self._prefix is None else len(self._prefix.ids) - 1
        return min(len(self._known) * PAGE, last)

    @contextmanager
    def embedding(self) -> Iterator[None]:
        """While the prompt is embedded, encode only what is not known."""
        prefix = self._prefix
        if prefix is None or not self.may_share:
            yield
            return
        is_hooked = ForwardHooks.any_in(self._adapter.decoder)
        self._known = [] if is_hooked else self._slots.prefixes.find(prefix)
        media: dict[str, list[MediaItem]] = {}
        for item in prefix.media:
            if isinstance(item, MediaItem):
                media.setdefault(item.kind, []).append(item)
        skipped = frozenset(entry.key for entry in prefix.media if entry.tokens[-1] < self._covered)
        with self._slots.features.reusing(self._adapter.body, media, skipped):
            yield

    def takes(self, prompt: Prompt) -> bool:
        """Returns whether an embedded prompt may do without what is known; if not, nothing is
        known.
        """
        prefix = self._prefix
        if not self._known or prefix is None:
            return True
        if prompt.lengths == [len(prefix.ids)] and self._adapter.may_split(prompt):
            return True
        self.may_share = False
        self._known = []
        return False

    def fill(self, cache: SlotCache) -> None:
        """Put what is known into the slots of the draft's row."""
        fill_pages(cache, self._known)
        cache.prefix = self._covered
        self._known = []


class DraftPrefixes:
    """Copies of a draft's slots, by the target's page that holds the same tokens.

    Args:
        pool: the pages.
    """

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.content: dict[int, tuple[PageName, Content]] = {}

    def evict(self, page: int) -> None:
        """Its place is taken."""
        self.content.pop(page, None)

    def keep(self, cache: SlotCache, row: int, pages: Sequence[int]) -> None:
        """A row leaves that holds so many pages of the target; its draft's cache is `cache`."""
        slots = self.pool.slots
        whole = cache.lengths[row] // slots if row < len(cache.lengths) else 0
        for index, page in enumerate(pages[:whole]):
            name = self.pool.name_of(page)
            if name is None or self.content.get(page, (None,))[0] == name:
                continue
            try:
                content = [tensor.clone() for tensor in read_page(cache, row, index, slots)]
            except Exception:  # no memory for a copy: the row leaves all the same
                return
            self.content[page] = name, content

    def find(self, prefix: Prefix) -> list[Content]:
        """Returns what is known of a text from its beginning, page by page."""
        result = []
        names = prefix.names(self.pool.slots)
        for page, name in zip(self.pool.find([item.key for item in names]), names, strict=False):
            page_content = self.content.get(page)
            if page_content is None or page_content[0] != name:
                break
            result.append(page_content[1])
        return result


def _draft_of(drafter: Drafter) -> ChainDrafter | None:
    """Returns a drafter whose slots are its model's own, token by token as the target's."""
    is_plain = isinstance(drafter, ChainDrafter) and type(drafter) is ChainDrafter
    return drafter if is_plain else None  # type: ignore[return-value]


def _shows_the_same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Returns whether the inputs of a draft are the target's, of one row."""
    ids = "input_ids"
    pixels = [item.keys() - {ids, "attention_mask"} for item in (first, second)]
    if pixels[0] != pixels[1] or any(first[name] is not second[name] for name in pixels[0]):
        return False
    words: list[list[int]] = []
    for inputs in (first, second):
        mask = inputs.get("attention_mask")
        words.append((inputs[ids] if mask is None else inputs[ids][mask.bool()]).flatten().tolist())
    return words[0] == words[1]


def _take_over(runner: ModelRunner, slots: SlotCache | None) -> bool:
    """Let a runner that was prefilled in rows lent by `slots` have all of them."""
    if slots is None or slots.borrower is not runner.cache:
        return False
    slots.prefix = runner.cache.prefix
    slots.merge(runner.cache)
    runner.cache = slots
    return True
