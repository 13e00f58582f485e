"""Many requests in one batch: each joins behind its prefill while others decode, and leaves."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .checks import check_whole
from .decoding.loop import Decoding, OnTokens, Session
from .decoding.rows import Reason
from .errors import SoonerError, UnsupportedError
from .generation import out_of_memory, session_of
from .methods import Autoregressive, Method
from .models.ranks import Ranks
from .request import Request, TokenLogprobs

if TYPE_CHECKING:
    from .graphs.recorder import GraphRecorder
    from .memory.manager import EngineMemory

logger = logging.getLogger("sooner")


class Engine:
    """Continuous batching over one model.

    Every `step` prefills a chunk of waiting prompts, one after the other, and decodes one round of
    all rows that are under way. A prompt that is prefilled joins them at once, if there is room.
    The ids of a greedy request, and of one with a seed, are those that it gets alone (fp32;
    elsewhere up to ties).

    What decodes only rows that were admitted together (`ParallelVLM`, models that draw on a grid,
    targets sharded by `tp_plan`) is given one request at a time; `alone` says so. So is a request
    whose method is another than that of the rows that decode, or out of whose prompt a prefill
    context took another number of tokens.

    An error ends the requests it belongs to, with `Request.error`: what a callback, a criterion or
    a logits processor raises, or bad logits of a row, that request; a forward that fails, all that
    decode together. The engine goes on with the others, and with whatever is admitted next.

    With `pages` or `memory` rows take memory as they grow. A request begins when its prompt fits;
    when no page is left, the last in order (`priority`, then admission) makes room and is prefilled
    again later, prompt and what it has said, so that it says what it would have said. The beginning
    that a prompt has in common with an earlier one is not prefilled again, nor are its pictures and
    clips encoded.

    Args:
        model: a loaded HF model.
        method: how to decode what asks for no other; plain by default.
        max_rows: rows that decode together; a request with more has a batch of its own.
        prefill_chunk: prompt tokens of a row that one step prefills, of several requests if they
            are short; `None` is the whole prompt of one. What listens to a whole prompt, and
            families whose decoder takes pixels that can't be split, prefill it at once.
        pages: memory of the engine in pages of 256 tokens, the drafter's own cache included;
            without it and `memory` every row is given what it may ever need.
        memory: the same in bytes.
        paged: rows share the pages of a common prefix, as they do on GPUs by default; otherwise
            their slots are contiguous, and a prefix is copied.
        prefix_caching: reuse what prompts have in common; needs `pages` or `memory`.
        graphs, compile: how steps are launched; see `sooner.generate`.

    Attributes:
        waiting, running: requests that have not begun, in order, and that decode.
        batch: what decodes, if anything does.
        alone: why no request may join another, in words; `None` if they may.

    Raises:
        SoonerError: a number below 1.
    """

    def __init__(
        self,
        model: Any,
        method: Method | None = None,
        *,
        max_rows: int = 8,
        prefill_chunk: int | None = None,
        pages: int | None = None,
        memory: int | None = None,
        paged: bool | None = None,
        prefix_caching: bool = True,
        graphs: str | GraphRecorder = "auto",
        compile: bool | Mapping[str, Any] = False,
    ) -> None:
        check_whole("max_rows", max_rows)
        self.launch = {"graphs": graphs, "compile": compile}
        self.model, self.method = model, method or Autoregressive()
        self.max_rows, self.prefill_chunk = max_rows, prefill_chunk
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.batch: Decoding | None = None
        self.alone: str | None = None
        self.memory: EngineMemory | None = None
        self._admitted = 0
        if pages is not None or memory is not None:
            from .memory.manager import EngineMemory  # for those who count pages

            for name, number in (("pages", pages), ("memory", memory)):
                if number is not None:
                    check_whole(name, number)
            self.memory = EngineMemory(
                model, self.method, pages=pages, memory=memory, paged=paged, max_rows=max_rows,
                prefix_caching=prefix_caching,
            )  # fmt: skip
        self._next: tuple[Request, Decoding, Iterator[None]] | None = None  # being prefilled
        self._ended: list[Request] = []  # in the step under way
        self._is_stepping = False
        if Ranks.of(model) is not None:
            self.alone = "a target under tp_plan decodes only rows that are admitted together"

    def admit(
        self,
        inputs: Mapping[str, Any],
        *,
        method: Method | None = None,
        seed: int | None = None,
        on_tokens: OnTokens | None = None,
        logprobs: int | None = None,
        num_draft_tokens: int | None = None,
        media_keys: Sequence[str] = (),
        priority: float = 0.0,
        **options: Any,
    ) -> Request:
        """Queue a request; its pixels are encoded when its turn comes.

        Args:
            inputs: what the model's processor returned.
            method: another than the engine's, or the same with drafts of its own (`HSD`).
            seed: seeds every draw of this request.
            on_tokens: called with `(row, new tokens, how many were drafted)` after each commit. It
                may admit and cancel requests, this one among them.
            logprobs: keep the log-probabilities of its tokens, and of so many likeliest ones.
            num_draft_tokens: most draft tokens of a round, on a path of a tree; 0 decodes plainly.
            media_keys: hashes of the content of its pictures and clips, in the order of the
                prompt, for an engine with pages; without them it takes hashes of the pixels.
            priority: requests with less of it begin first, and make room last; equal ones in the
                order of their admission.
            options: anything that `sooner.generate` takes, such as `max_new_tokens`.
        """
        kept = {"logprobs": logprobs, "num_draft_tokens": num_draft_tokens}
        for name, number in kept.items():
            if number is not None:
                check_whole(name, number, 0)
        options |= {"seed": seed, "on_tokens": on_tokens, **kept}
        ids = inputs.get("input_ids")
        copies = options.get("num_return_sequences") or 1
        rows = copies * (1 if ids is None else len(ids))
        request = Request(inputs, options, method or self.method, rows, priority=priority)
        self._admitted += 1
        request.number = self._admitted
        if self.memory is not None:
            shown = self.memory.describe(inputs, media_keys)
            request.shown = shown.continued(options.get("said", ()))
        self._wait(request)
        return request

    def _wait(self, request: Request) -> None:
        """Put a request in line, behind those that go first."""
        request.is_waiting = True
        ahead = sum(one.order < request.order for one in self.waiting)
        self.waiting.insert(ahead, request)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or decodes."""
        return not (self.waiting or self.running or self._next)

    @property
    def pages(self) -> int:
        """Pages of its memory; 0 where nobody counts them."""
        return 0 if self.memory is None else self.memory.pool.size

    @property
    def pages_used(self) -> int:
        """Pages that requests hold; those that only keep a prefix are not among them."""
        return 0 if self.memory is None else self.memory.pool.used

    @property
    def longest(self) -> int | None:
        """Tokens that a request of one row may have, prompt and answer; `None` is any number."""
        if self.memory is None:
            return None
        return self.memory.longest(self.method.largest_block())

    def step(self) -> list[Request]:
        """Prefill a chunk, decode a round; returns the requests that have ended.

        Raises:
            SoonerError: a callback of a step asked for another.
        """
        if self._is_stepping:
            raise SoonerError("a callback can't call Engine.step; it may admit and cancel requests")
        self._is_stepping, self._ended = True, []
        try:
            left = self.prefill_chunk or 1
            while left > 0 and (tokens := self._prefill()):
                left -= tokens
            self._guarded(self._make_room)
            if self.batch is not None and self.batch.rows.active:
                self._guarded(self.batch.round)
            self._guarded(self._collect)
            self._drop_cancelled()
        finally:
            self._is_stepping = False
            ended, self._ended = self._ended, []  # an idle engine holds nobody's pixels
        return ended

    def run(self) -> None:
        """Decode every request that was admitted to its end."""
        while not self.is_idle:
            self.step()

    def cancel(self, request: Request) -> None:
        """End a request before its time; `request.tokens` is what it said so far.

        In a callback it ends with the step under way, and says nothing more.
        """
        request.is_cancelled = True
        if not self._is_stepping:
            self._drop_cancelled()

    def close(self) -> None:
        """End every request."""
        prefilled = [] if self._next is None else [self._next[0]]
        for request in [*self.waiting, *self.running, *prefilled]:
            self.cancel(request)

    def _drop_cancelled(self) -> None:
        for request in [one for one in self.waiting if one.is_cancelled]:
            self.waiting.remove(request)
            self._end(request, [[] for _ in range(request.rows)], "cancelled")
        if self._next is not None and self._next[0].is_cancelled:
            self._give_up("cancelled")
        if any(request.is_cancelled for request in self.running):
            self._guarded(self._collect)

    def _end(
        self,
        request: Request,
        tokens: list[list[int]],
        reasons: Reason | list[Reason],
        error: Exception | None = None,
    ) -> None:
        if request.before is not None:
            tokens = [[*request.before.said, *new] for new in tokens]
        request.tokens, request.error = tokens, error
        request.finish_reasons = reasons if isinstance(reasons, list) else [reasons] * len(tokens)
        if self._is_stepping:
            self._ended.append(request)

    def _told(self, error: Exception, request: Request) -> Exception:
        """The error as the request is told of it; what its frames hold is let go."""
        traceback.clear_frames(error.__traceback__)
        told = None
        if (ids := request.inputs.get("input_ids")) is not None:
            told = out_of_memory(error, self.model, ids, request.options)
        return told or error

    def _guarded(self, act: Any) -> None:
        """Do something with the batch; if that fails, every request that decodes is told."""
        try:
            act()
        except Exception as error:
            self._abandon(error)

    def _abandon(self, error: Exception) -> None:
        batch, self.batch = self.batch, None
        running, self.running = self.running, []
        assert batch is not None
        for request in running:
            said = [list(batch.rows.generated[row]) for row in request.originals]
            self._end(request, said, "error", self._told(error, request))
        _close(batch)

    def _prefill(self) -> int:
        """One chunk of a prompt, or its pixels; lets a request that is prefilled decode.

        Returns how many tokens of a row that was if it does, and another request may be begun.
        """
        if self._next is None:
            if not self.waiting or not self._may_begin(self.waiting[0]):
                return 0
            request = self.waiting.popleft()
            try:
                self._next = self._open(request)
                if self._next is None:
                    self.waiting.appendleft(request)
                    return 0
                request.is_waiting = False
            except Exception as error:
                self._end(request, [[] for _ in range(request.rows)], "error",
                          self._told(error, request))  # fmt: skip
                return 0
            if self.batch is not None and any("pixel" in name for name in request.inputs):
                return 0  # others decode: the pixels were this step's part
        request, decoding, chunks = self._next
        try:
            if next(chunks, self) is not self:
                return 0  # more chunks are to come
        except Exception as error:
            self._give_up("error", error)
            return 0
        request.mode = decoding.stats.mode
        if not decoding.rows.active or decoding.failed:
            failure = next(iter(decoding.failed.values()), None)
            self._give_up("error" if failure else None, failure)
        elif self._join(request, decoding):
            self._next = None
            self.running.append(request)
            session = decoding.session
            forwarded = max(session.prompt.lengths) - session.target.cache.prefix
            return min(forwarded, self.prefill_chunk or 1)
        return 0

    def _may_begin(self, request: Request) -> bool:
        """Whether a request may be prefilled, to decode with what decodes already."""
        if self.batch is None:
            return True
        if self.memory is not None and request.shown is not None:
            block = request.method.largest_block()
            others = sum(one.rows == 1 for one in self.running)
            if not self.memory.has_room(request.shown, request.rows, block, others):
                return False
        joins = self.running[0].method.joins(request.method)
        room = len(self.batch.rows.active) + request.rows <= self.max_rows
        return self.alone is None and joins and room

    def _open(self, request: Request) -> tuple[Request, Decoding, Iterator[None]] | None:
        """A request that is to be prefilled; `None` if there is no memory for it yet."""
        options, method = {**self.launch, **request.options}, request.method
        most, own = options.pop("logprobs"), options.pop("said", ())
        longest = options.pop("num_draft_tokens")
        if self.prefill_chunk is not None and not method.needs_whole_prompt:
            options.setdefault("prefill_chunk_size", self.prefill_chunk)
        before = request.before

        def make() -> Session:
            said = [*own, *(() if before is None else before.said)]
            session = session_of(self.model, request.inputs, method, said=said, **options)
            session.target.cache.max_rows = self.max_rows
            if before is not None:
                before.go_on(session)
            return session

        if self.memory is None or request.shown is None:
            session = make()
        else:
            beside = None if self.batch is None else self.batch.session.target.cache
            opened = self.memory.open(make, request.shown, method, beside)
            if opened is None:
                return None
            session, cached = opened
            if before is None:
                request.cached_tokens = cached
        if session.constraint is not None:
            name = type(self.model).__name__
            self.alone = f"{name} draws on a grid, and decodes only rows that are admitted together"
        own = f"{type(method).__name__} decodes only rows that are admitted together"
        if (reason := self.alone or (None if method.joins(method) else own)) is not None:
            session.stats.note(f"{reason}: each request has a batch of its own")
        if not session.target.adapter.may_split(session.prompt):
            session.prefill_chunk = None
        request.rows = session.rows.batch
        session.drafts, session.max_draft = request.drafts, longest
        if most is not None:
            request.logprobs = request.logprobs or [[] for _ in range(request.rows)]

            def keep(row: int, tokens: list[int], logits: Tensor) -> None:
                request.logprobs[row] += TokenLogprobs.of(logits, tokens, most)

            session.on_logits = keep
        decoding = Decoding(session, self.batch)
        return request, decoding, decoding.prefill()

    def _make_room(self) -> None:
        """Give every row that decodes pages for a round; the last in order leave for that."""
        memory = self.memory
        while memory is not None and self.batch is not None and self.batch.rows.active:
            block = max(request.method.largest_block() for request in self.running)
            if memory.room_for(self.batch.session.target.cache, block):
                return
            young = [one for one in self.running if one.rows == 1]
            if self._next is not None and self._next[0].rows == 1:
                young.append(self._next[0])
            self._interrupt(max(young, key=lambda request: request.order))

    def _interrupt(self, request: Request) -> None:
        """Let a request of one row wait again, with what it has said."""
        from .memory.interrupted import InterruptedRow  # by an engine that counts pages

        batch, had = self.batch, request.before
        assert batch is not None
        if self._next is not None and self._next[0] is request:
            _, decoding, chunks = self._next
            self._next = None
            chunks.close()  # type: ignore[attr-defined]
            request.before = InterruptedRow.of(decoding, 0, had)
            _close(decoding)
        else:
            request.before = InterruptedRow.of(batch, request.first, had)
            batch.drop(request.first)
            batch.release(request.first)
            self.running.remove(request)
        new = request.before.said[0 if had is None else len(had.said) :]
        assert request.shown is not None
        request.shown = request.shown.continued(new)
        request.first, request.waits_alone = 0, False
        request.num_preemptions += 1
        self._wait(request)
        batch.stats.note(f"a row that has said {len(request.before.said)} tokens made room")
        if not batch.rows.active:
            self._collect()

    def _give_up(self, reason: Reason | None, error: Exception | None = None) -> None:
        """End the request that was to decode next; `None` is for its own reasons."""
        assert self._next is not None
        request, decoding, chunks = self._next
        self._next = None
        chunks.close()  # type: ignore[attr-defined]
        rows = decoding.rows
        reasons = [rows.reasons[row] for row in range(request.rows)] if reason is None else reason
        told = None if error is None else self._told(error, request)
        if (strayed := decoding.stats.deviation) is not None:
            request.deviations = [strayed.of(row) for row in range(request.rows)]
            decoding.stats.deviation = None  # the batch never had these rows
        self._end(request, rows.generated, reasons, told)
        if self.batch is not None and error is None:
            self.batch.stats.join(decoding.stats, self.batch.rows.batch)
        decoding.failed.clear()  # an error's frames hold what holds the error
        _close(decoding)

    def _join(self, request: Request, decoding: Decoding) -> bool:
        """Let prefilled rows decode, unless they have to wait for a batch of their own."""
        if self.batch is None:
            self.batch = decoding
            return True
        if request.waits_alone:
            return False
        try:
            request.first = self.batch.join(decoding)
        except UnsupportedError as refusal:
            request.waits_alone = True
            decoding.stats.note(str(refusal))
            return False
        except Exception as error:  # half joined: neither can go on
            self._abandon(error)
            self._give_up("error", error)
            return False
        return True

    def _collect(self) -> None:
        """End the requests whose last row has ended, or that failed or were cancelled; a batch
        without rows is closed."""
        batch = self.batch
        if batch is None:
            return
        for request in list(self.running):
            rows = request.originals
            error = next((batch.failed[row] for row in rows if row in batch.failed), None)
            if error is not None or request.is_cancelled:
                for row in rows:
                    batch.drop(row)
            if not set(batch.rows.active).isdisjoint(rows):
                continue
            self.running.remove(request)
            reasons: Reason | list[Reason] = [batch.rows.reasons[row] for row in rows]
            if error is not None:
                reasons, error = "error", self._told(error, request)
            if (strayed := batch.stats.deviation) is not None:
                request.deviations = [strayed.release(row) for row in rows]
            self._end(request, [batch.release(row) for row in rows], reasons, error)
        if not batch.rows.active:
            self.batch = None
            _close(batch)


def _close(decoding: Decoding) -> None:
    """Let go of what a batch holds; requests have ended, so a failure of that is only logged."""
    try:
        decoding.close()
    except Exception:
        logger.exception("a batch could not be closed")
