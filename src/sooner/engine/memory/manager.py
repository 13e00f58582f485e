"""An engine's memory: which rows fit, what of a prompt is cached, which requests wait."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import MemoryRanOutError, SoonerError, UnsupportedError
from ...methods import Method
from ...methods.speculative import ChainDrafter
from ...models import Adapter, adapt
from ...models.hooks import ForwardHooks
from ..attention.block import PAGE as PAGE  # what users of pages import
from ..cache import SlotCache, kv_shapes
from ..interface import Drafter, Prompt
from ..loop import Decoding, Session
from ..runner import is_split
from .media import PIXELS, VisualFeatures, media_of
from .paged import PagedCache, PageStores
from .pages import (
    Content,
    CopiedRows,
    MediaItem,
    PageCopies,
    PagePool,
    Prefix,
    RowMemory,
    RowPages,
    SpareSlots,
    fill_pages,
)

FEATURES = 256 << 20
"""Bytes of encoded pictures and clips that are kept."""

DRAFT_FEATURES = 64 << 20
"""Bytes of pictures and clips, encoded by a draft's tower, that are kept."""

TAIL_SLOTS = 1024
"""Slots of a row behind the positions that its model knows, for blocks and for preempted rows."""


@dataclass
class PromptInfo:
    """What is known of a prompt before it is embedded.

    Attributes:
        width: tokens of its longest row.
        media: its pictures and clips by kind.
        prefix: its text; `None` if nothing of it is shared.
        keys: of the full pages of its text.
        why_not: why nothing is shared, in words.
        fresh: pages that were missing when there was no room for the prompt.
    """

    width: int
    media: dict[str, list[MediaItem]] = field(default_factory=dict)
    prefix: Prefix | None = None
    keys: list[bytes] = field(default_factory=list)
    why_not: str = ""
    fresh: int = 0

    def within(self, slots: int) -> frozenset[bytes]:
        """Returns keys of the media that lie wholly in the first `slots` slots."""
        items = (item for kind in self.media.values() for item in kind)
        return frozenset(item.key for item in items if item.tokens[-1] < slots)

    def continued(self, generated: Sequence[int]) -> PromptInfo:
        """Returns the prompt with `generated` tokens at its end."""
        width = self.width + len(generated)
        if self.prefix is None:
            return replace(self, width=width, fresh=0)
        prefix = Prefix([*self.prefix.ids, *generated], self.prefix.media)
        return replace(self, width=width, prefix=prefix, keys=prefix.keys(PAGE), fresh=0)


class EngineMemory:
    """Counts the pages of one engine, and keeps its prefixes and features.

    A page counts `PAGE` tokens of the target and of the drafter's own cache.

    Args:
        model, method: the engine's.
        pages: number of pages.
        memory: the same in bytes.
        paged: slots lie in pages, so that rows share those of a prefix; otherwise rows are
            contiguous, take pages by number alone, and copy a prefix. `None` is pages on GPUs.
        max_rows: rows of a batch.
        prefix_caching: what prompts have in common is shared.

    Attributes:
        pool: the pages.
        features: encoded pictures and clips.
        spare: slots of the last batch.
        draft_features, draft_spare: of a draft's tower, and of the last batch's draft.
        draft_copies: a draft's slots of the tokens in named pages.

    Raises:
        SoonerError: fewer bytes than a page takes; `paged` for a model that can't have pages.
    """

    def __init__(
        self,
        model: Any,
        method: Method,
        *,
        pages: int | None = None,
        memory: int | None = None,
        paged: bool | None = None,
        max_rows: int = 8,
        prefix_caching: bool = True,
    ) -> None:
        self.adapter = model if isinstance(model, Adapter) else adapt(model)
        self.max_rows, self.prefix_caching = max_rows, prefix_caching
        self._cached_pages = PageCopies()
        if pages is None:
            size, memory = page_bytes(self.adapter, method), memory or 0
            if memory < size:
                raise MemoryRanOutError(
                    f"memory={memory} bytes are less than a page of {PAGE} tokens takes, {size}; "
                    "give more"
                )
            pages = memory // size
        self.pool = PagePool(pages, PAGE, self._evict)
        self.features = VisualFeatures(FEATURES)
        may_page = self.adapter.takes_blocks and not is_split(self.adapter.model)
        shapes = set(kv_shapes(self.adapter.text_config)[: self.adapter.layers])
        may_page &= len(shapes) == 1 and all(key == value for _, key, value in shapes)
        if paged and not may_page:
            raise UnsupportedError(
                f"paged=True, but {type(self.adapter.model).__name__} decodes with masks, over "
                "several devices or with keys and values of several sizes, where slots are "
                "contiguous; leave paged out"
            )
        if paged is None:
            paged = may_page and self.adapter.device.type == "cuda"
        self._stores = PageStores(self.pool, self.adapter.layers) if paged else None
        reuses = not paged and self.adapter.device.type == "cpu"
        self.spare, self.draft_spare = SpareSlots(reuses), SpareSlots(reuses)
        self.draft_copies, self.draft_features = PageCopies(), VisualFeatures(DRAFT_FEATURES)
        longest = (self.adapter.max_positions or self.pool.size * PAGE) + TAIL_SLOTS
        self._row_pages = min(self.pool.size, self.pool.pages_for(longest))  # of one row at most

    def _evict(self, page: int) -> None:
        self._cached_pages.evict(page)
        self.draft_copies.evict(page)

    def longest(self, block: int) -> int:
        """Returns tokens that a request of one row may have, prompt and answer.

        Args:
            block: entries of a round.
        """
        return max(self._row_pages * PAGE - block, 0)

    def describe(self, inputs: Mapping[str, Any], keys: Sequence[str] = ()) -> PromptInfo:
        """Returns what a request shows.

        Args:
            inputs: what the model's processor returned.
            keys: of the content of its media, in its order; taken of the pixels if empty.

        Raises:
            SoonerError: another number of keys than of media.
        """
        ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
        if ids is None or len(ids) > 1:
            return PromptInfo(
                0 if ids is None else ids.shape[1], why_not="its prompts are prefilled together"
            )
        shows = bool(keys) or any(name in inputs for name in PIXELS.values())
        media = media_of(self.adapter, inputs, keys) if shows else {}
        if not self.prefix_caching:
            width = ids.shape[1] if mask is None else int(mask.sum())
            return PromptInfo(width, media, why_not="prefix_caching=False")
        text = (ids[0] if mask is None else ids[0][mask[0].bool()]).tolist()
        items = [item for kind in media.values() for item in kind]
        prefix = Prefix(text, [*sorted(items, key=lambda item: item.tokens[0])])
        return PromptInfo(len(text), media, prefix, prefix.keys(PAGE))

    def can_begin(self, prompt_info: PromptInfo, rows: int, block: int, growing: int = 0) -> bool:
        """Returns whether there are pages for a request now, as far as its token ids tell.

        Args:
            prompt_info: its text.
            rows: of its batch.
            block: entries of a round.
            growing: rows that may grow; a page is left to each, or else one would have to make room
                at once.
        """
        pool = self.pool
        if not pool.used:
            return True  # it is opened, or refused
        needed = rows * pool.pages_for(prompt_info.width + block)
        if self._stores is not None:  # pages that others hold are no further ones
            pages = pool.find(prompt_info.keys)[: max(prompt_info.width - 1, 0) // PAGE]
            needed -= sum(pool.holders(page) > 0 for page in pages)
        return max(needed, prompt_info.fresh) + growing <= pool.available

    def open(
        self,
        make: Callable[[], Session],
        prompt_info: PromptInfo,
        method: Method,
        batch: Decoding | None,
    ) -> tuple[Session, int] | None:
        """Set a request up, with pages for its prompt and what is there already in its slots.

        Args:
            make: embeds the prompt.
            prompt_info: its text.
            method: of the request.
            batch: the rows that it is to join.

        Returns:
            The session and its prompt's cached tokens; `None` if there is no room for it yet.

        Raises:
            SoonerError: it may need more than all pages.
        """
        pool = self.pool
        cached_pages = pool.find(prompt_info.keys)
        pool.hold(cached_pages)  # until it is known which are used
        session = None
        try:
            session = self._embed(make, prompt_info, cached_pages, method)
            prefix, slots = self._shared(session, prompt_info, cached_pages, method)
            needed = self._slots_needed(session, method)
            shared = cached_pages[: pool.pages_for(slots)]
            reused = shared[: slots // PAGE] if self._stores is not None else []
            content = (
                [self._cached_pages.find(page) for page in shared] if self._stores is None else []
            )
            pool.hold(reused)
        except BaseException:
            if session is not None:
                session.drafter.close()
            raise
        finally:
            pool.drop(cached_pages)
        if needed - len(reused) > pool.available:
            pool.drop(reused)
            session.drafter.close()
            prompt_info.fresh = needed - len(reused)
            return None
        fresh = pool.take(needed - len(reused))
        each = needed // session.prompt.rows
        pages = [*reused, *fresh]
        rows = [RowMemory(pages[start : start + each], prefix) for start in range(0, needed, each)]
        is_paged, cache = self._stores is not None, session.target.cache
        row_pages = (
            RowPages(pool, rows) if is_paged else CopiedRows(pool, rows, self._cached_pages, cache)
        )
        try:
            if self._stores is not None:
                if len(shared) > len(reused):  # of the last page the row writes some slots
                    self._stores.copy(shared[-1], fresh[0])
                cache = session.target.cache = PagedCache(
                    self._stores, self._row_pages * PAGE - 1, self.max_rows, row_pages,
                    self.adapter.device,
                )  # fmt: skip
            else:
                if self.adapter.device.type == "cpu":  # slots that are not written cost nothing
                    cache.capacity = pool.pages_for(cache.capacity) * PAGE
                if batch is None:
                    self.spare.lend(cache, session.prompt.rows)
                else:
                    cache.borrow(batch.session.target.cache, session.prompt.rows)
                cache.pages = row_pages
                fill_pages(cache, content)
        except BaseException:  # such as too little memory for the row
            row_pages.select_rows([])
            session.drafter.close()
            raise
        cache.prefix = slots
        self._serve_draft(session, batch)
        pool.queries += sum(session.prompt.lengths)
        pool.hits += slots
        return session, slots

    def allocate(self, cache: SlotCache, block: int) -> bool:
        """Gives each row of a cache pages for a round, if there are enough for all.

        Args:
            cache: of rows that decode.
            block: entries of the round.
        """
        assert isinstance(cache.pages, RowPages)
        slots = [min(length + block, cache.capacity) for length in cache.lengths]
        if cache.pages.missing(slots) > self.pool.available:
            return False
        cache.pages.grow(slots)
        return True

    def keep(self, batch: Decoding) -> None:
        """Has later requests use the slots of a batch that has ended."""
        self.spare.keep(batch.session.target.cache)
        draft = draft_of(batch.drafter)
        if draft is not None and draft.runner is not None:  # else nothing was drafted in it
            self.draft_spare.keep(draft.runner.cache)

    def _embed(
        self, make: Callable[[], Session], prompt_info: PromptInfo, pages: list[int], method: Method
    ) -> Session:
        """Returns the prompt, without features of media whose slots are there already."""
        if not prompt_info.media:
            return make()
        last = 0 if prompt_info.prefix is None else len(prompt_info.prefix.ids) - 1
        skipped = prompt_info.within(min(len(pages) * PAGE, last))
        with self.features.reusing(self.adapter.body, prompt_info.media, skipped):
            session = make()
        if not skipped:
            return session
        try:
            _, slots = self._shared(session, prompt_info, pages, method)
        except BaseException:
            session.drafter.close()
            raise
        if skipped <= prompt_info.within(slots):
            return session
        session.drafter.close()  # positions differ, or something listens to the whole prompt
        with self.features.reusing(self.adapter.body, prompt_info.media):
            return make()

    def _shared(
        self, session: Session, prompt_info: PromptInfo, pages: list[int], method: Method
    ) -> tuple[Prefix | None, int]:
        """Returns the prompt's text with positions, and how many of its slots are there already."""
        prompt, prefix, pool = session.prompt, prompt_info.prefix, self.pool
        why_not = self._why_not(session, prompt_info, method)
        if why_not or prefix is None:
            text = f"no prefix is shared: {why_not}"
            if text not in session.stats.notes:
                session.stats.note(text)
            return None, 0
        prefix.positions = prompt.positions[..., 0, : prompt.lengths[0]].cpu().numpy()
        prefix.next_position = tuple(prompt.next_position[..., 0].reshape(-1).tolist())
        agreed = 0
        for page, name in zip(pages, prefix.names(PAGE), strict=False):
            if pool.name_of(page) != name:
                break
            agreed += 1
        return prefix, min(agreed * PAGE, prompt.width - 1)

    def _why_not(self, session: Session, prompt_info: PromptInfo, method: Method) -> str:
        """Returns what keeps an embedded prompt from sharing slots, in words."""
        prompt, model = session.prompt, type(self.adapter.model).__name__
        if prompt_info.prefix is None:
            return prompt_info.why_not
        if prompt.rows > 1:
            return f"its {prompt.rows} rows are prefilled together"
        if self.adapter.chains_only:
            return f"layers of {model} keep a state, which is the whole prompt's"
        if method.needs_whole_prompt:
            return f"{session.stats.method} listens to the whole prompt"
        if type(session.drafter).on_prefill is not Drafter.on_prefill:
            return f"{session.stats.method} listens to the states of the whole prompt"
        rope = session.target.rope
        if rope is not None and rope.is_past_switch(prompt):
            return f"keys of {model} are turned by the length of the whole prompt"
        if not self.adapter.may_split(prompt):
            return f"{model} takes its pixels in the decoder"
        if ForwardHooks.any_in(self.adapter.decoder):
            return f"a context works on the layers of {model}"
        if session.target.is_sparse:
            return "a sparse prefill looks at the whole prompt"
        if prompt.lengths[0] != len(prompt_info.prefix.ids):
            return "the model's tokens are not those of the inputs"
        return ""

    def _slots_needed(self, session: Session, method: Method) -> int:
        """Returns pages that a request begins with.

        Raises:
            SoonerError: it may need more than there are.
        """
        pool, prompt = self.pool, session.prompt
        capacity = session.target.cache.capacity
        each = pool.pages_for(capacity)
        if each > self._row_pages or prompt.rows * each > pool.size:
            raise SoonerError(
                f"the request may need {prompt.rows * each} pages ({prompt.rows} x {capacity} "
                f"tokens with its longest answer, {PAGE} a page), the engine has {pool.size}, and "
                f"{self._row_pages} for a row; shorten the prompt, lower max_new_tokens or give "
                "the engine more memory"
            )
        if prompt.rows > 1:
            return prompt.rows * each  # such a request is never interrupted
        return min(pool.pages_for(prompt.width + method.largest_block()), each)

    def _serve_draft(self, session: Session, batch: Decoding | None) -> None:
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
            entry, pool, copies = known(), rows.pool, self.draft_copies
            if entry is None or entry.runner is None or row not in entry.members:
                return
            if not rows.rows[row].has_draft:
                return
            cache, place = entry.runner.cache, entry.members.index(row)
            whole = cache.lengths[place] // pool.slots if place < len(cache.lengths) else 0
            for index, page in enumerate(rows.rows[row].pages[:whole]):
                if pool.name_of(page) is not None and page not in copies.content:
                    copies.keep(page, cache.read_page(place, index, pool.slots))

        pages.on_leave = leave


class DraftMemory:
    """What an engine's memory does for the prompt of one draft; see `ChainDrafter.memory`.

    Args:
        memory: of the engine.
        drafter: whose prompt it is.
        prefix: of the target's prompt.
        batch: that it is to join.

    Attributes:
        may_share: its slots hold the target's tokens, each where the target's does.
    """

    def __init__(
        self,
        memory: EngineMemory,
        drafter: ChainDrafter,
        prefix: Prefix | None,
        batch: Decoding | None,
    ) -> None:
        self._memory, self._prefix, self._batch = memory, prefix, batch
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
        spare, batch = self._memory.draft_spare, self._batch
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
            media.setdefault(item.kind, []).append(item)
        if not media:
            yield
            return
        skipped = frozenset(entry.key for entry in prefix.media if entry.tokens[-1] < self._covered)
        with self._memory.draft_features.reusing(self._adapter.body, media, skipped):
            yield

    def _find(self, prefix: Prefix) -> list[Content]:
        """Returns what is known of a text from its beginning, page by page."""
        pool, content = self._memory.pool, self._memory.draft_copies.content
        result = list[Content]()
        names = prefix.names(pool.slots)
        for page, name in zip(pool.find([item.key for item in names]), names, strict=False):
            if pool.name_of(page) != name or page not in content:
                break
            result.append(content[page])
        return result

    def takes(self, prompt: Prompt) -> bool:
        """Returns whether a prompt may do without what is known, which is dropped if not."""
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
    return drafter if type(drafter) is ChainDrafter else None


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


def page_bytes(adapter: Adapter, method: Method) -> int:
    """Returns bytes of a page of the target, and of the drafter's own cache."""
    return PAGE * (adapter.slot_bytes + method.slot_bytes())
