"""What an engine's memory does for a draft model: slots, and its part of prefixes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...methods.chain_draft import ChainDrafter
from ...models.hooks import ForwardHooks
from ..attention.block import PAGE
from ..cache import SlotCache
from ..interface import Drafter, Prompt
from ..loop import Decoding, Session
from .media import MediaItem, VisualFeatures
from .pages import (
    Content,
    PageCopies,
    PagePool,
    Prefix,
    RowPages,
    SpareSlots,
    fill_pages,
    read_page,
)

DRAFT_FEATURES = 64 << 20
"""Bytes of pictures and clips, encoded by a draft's tower, that are kept."""


class DraftMemory:
    """What an engine's memory does for the prompt of one draft; see `ChainDrafter.memory`.

    Args:
        store: of the engine.
        drafter: whose prompt it is.
        prefix: of the target's prompt.
        batch: that it is to join.

    Attributes:
        may_share: its slots hold the target's tokens, each where the target's does.
    """

    def __init__(
        self,
        store: DraftStore,
        drafter: ChainDrafter,
        prefix: Prefix | None,
        batch: Decoding | None,
    ) -> None:
        self._store, self._prefix, self._batch = store, prefix, batch
        self._adapter: Any = drafter.adapter
        self._known: list[Content] = []
        context = drafter.context
        is_single = context.output_ids is None and context.rows.batch == 1
        shares = is_single and not self._adapter.chains_only  # a state is the whole prompt's
        self.may_share = shares and _shows_the_same(drafter.inputs, context.inputs)

    def place(self, cache: SlotCache, rows: int) -> bool:
        """Lets a prompt of `rows` rows be prefilled in slots that are there already, on CPUs.

        Returns:
            Whether later drafts may be given these slots.
        """
        spare, batch = self._store.spare, self._batch
        if self._adapter.device.type == "cpu":
            cache.capacity += -cache.capacity % PAGE  # later rows are likely to fit
            draft = None if batch is None or not batch.rows.active else draft_of(batch.drafter)
            if spare.reuses and draft is not None and draft.runner is not None:
                cache.borrow(draft.runner.cache, rows)
            else:
                spare.lend(cache, rows)
        return spare.reuses

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
        self._known = [] if is_hooked else self._find(prefix)
        media: dict[str, list[MediaItem]] = {}
        for item in prefix.media:
            if isinstance(item, MediaItem):
                media.setdefault(item.kind, []).append(item)
        skipped = frozenset(entry.key for entry in prefix.media if entry.tokens[-1] < self._covered)
        with self._store.features.reusing(self._adapter.body, media, skipped):
            yield

    def _find(self, prefix: Prefix) -> list[Content]:
        """Returns what is known of a text from its beginning, page by page."""
        pool, content, result = self._store.pool, self._store.copies.content, list[Content]()
        names = prefix.names(pool.slots)
        for page, name in zip(pool.find([item.key for item in names]), names, strict=False):
            if pool.name_of(page) != name or page not in content:
                break
            result.append(content[page])
        return result

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


def draft_of(drafter: Drafter) -> ChainDrafter | None:
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


class DraftStore:
    """What outlives a draft: slots, copies of its pages, encoded pictures.

    Args:
        pool: the target's pages, by which copies of a draft's slots are named.
        reuses: whether slots are taken over.

    Attributes:
        spare: slots of the last batch's draft.
        copies: a draft's slots of the tokens in named pages.
        features: pictures and clips, encoded by a draft's tower.
    """

    def __init__(self, pool: PagePool, reuses: bool) -> None:
        self.pool, self.spare = pool, SpareSlots(reuses)
        self.copies, self.features = PageCopies(), VisualFeatures(DRAFT_FEATURES)

    def serve(self, session: Session, batch: Decoding | None) -> None:
        """Have a session's draft prefilled where its rows are to decode, without what is known.

        Args:
            session: with its pages.
            batch: the batch that it is to join.
        """
        draft, pages = draft_of(session.drafter), session.target.cache.pages
        if draft is None or not isinstance(pages, RowPages):
            return
        prefix = pages.rows[0].prefix if len(pages.rows) == 1 else None
        draft.memory = DraftMemory(self, draft, prefix, batch)
        for row in pages.rows:
            row.has_draft = draft.memory.may_share
        known = weakref.ref(draft)  # it holds the pages

        def leave(rows: RowPages, row: int) -> None:
            """Copies the draft's slots of the full pages of a row."""
            entry, pool, copies = known(), rows.pool, self.copies
            if entry is None or entry.runner is None or row not in entry.members:
                return
            if not rows.rows[row].has_draft:
                return
            cache, place = entry.runner.cache, entry.members.index(row)
            whole = cache.lengths[place] // pool.slots if place < len(cache.lengths) else 0
            for index, page in enumerate(rows.rows[row].pages[:whole]):
                if pool.name_of(page) is not None and page not in copies.content:
                    copies.keep(page, read_page(cache, place, index, pool.slots))

        pages.on_leave = leave
