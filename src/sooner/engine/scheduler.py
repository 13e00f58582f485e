"""Many requests in one batch: each joins behind its prefill while others decode, and leaves."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from ..checks import check_inputs, check_model, check_number, check_whole
from ..errors import SoonerError
from ..methods import Method
from ..methods.base import as_method
from .loop import Decoding, OnTokens
from .memory import out_of_memory
from .request import (
    Ending,
    PreemptedRow,
    Prefiller,
    Request,
    RequestOptions,
    RunningBatch,
    close_batch,
)
from .rows import Reason

if TYPE_CHECKING:
    from ..options import GenerateOptions
    from .graphs.recorder import GraphRecorder
    from .memory.manager import EngineMemory

PATIENCE = 4.0
"""Seconds that a prompt is held back at most."""
REMEMBERED = 8
"""Pieces of a kind by which the next one is judged."""


class TokenPace:
    """Says when rows that decode have slack for a piece of a prompt.

    A row has so many seconds a token, counted from its first one. What it has not used is its
    slack, and a piece begins when every row has slack for it and for the round behind it: dynamic
    chunking by slack (QoServe, arXiv 2503.22562), of chunks as Sarathi-Serve has them (arXiv
    2403.02310).

    Args:
        seconds: that a token of a row may take, on average over its answer so far.
        patience: seconds behind its arrival after which a prompt is held back no more: a load that
            never leaves any slack is served as without a pace.
        clock: seconds, of any origin.

    Attributes:
        round: seconds of the last round.

    Raises:
        SoonerError: a time that is not above 0.
    """

    def __init__(
        self,
        seconds: float,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_number("seconds", seconds, above=True)
        self.seconds, self.patience, self.clock = seconds, patience, clock
        self.round = 0.0
        self._costs: dict[Hashable, deque[float]] = {}

    def allows(self, kind: Hashable, arrived: float, rows: Iterable[tuple[float, int]]) -> bool:
        """Returns whether a piece may be prefilled now.

        Args:
            kind: of the piece: those of one kind cost about the same. What was never seen costs
                nothing, so that it is seen.
            arrived: when the prompt came.
            rows: of each that decodes the time of its first token, and how many it has generated.
        """
        now = self.clock()
        if now - arrived >= self.patience:
            return True
        ready = now + self.cost(kind) + self.round
        return all(ready - first <= self.seconds * tokens for first, tokens in rows)

    def cost(self, kind: Hashable) -> float:
        """Seconds that a piece of a kind takes: the second most of those seen last, as one that
        was interrupted tells nothing."""
        seen = sorted(self._costs.get(kind, ()))
        return seen[max(len(seen) - 2, 0)] if seen else 0.0

    def took(self, kind: Hashable, seconds: float) -> None:
        """Records how long a piece took."""
        self._costs.setdefault(kind, deque(maxlen=REMEMBERED)).append(seconds)


class Engine:
    """Runs continuous batching over one model.

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
    when no page is left, the last in order (`priority`, then arrival) is preempted. It is prefilled
    again later, its prompt and its output, and its tokens are those that it would have generated
    anyway. The beginning that a prompt has in common with an earlier one is not prefilled again,
    nor are its pictures and clips encoded.

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
        paged: rows share the pages of a common prefix, as they do by default on GPUs if layers are
            alike; otherwise their slots are contiguous, and a prefix is copied.
        prefix_caching: reuse what prompts have in common; needs `pages` or `memory`.
        graphs, compile, verify_every: how steps are launched, and which are decoded again to be
            compared; see `sooner.generate`.
        pace: of the tokens of rows that decode, for which prompts are held back; by default they
            are prefilled as soon as there is room.

    Attributes:
        waiting: requests that have not begun, in order.
        prefilling: the request whose prompt is under way, or that waits to join the batch.
        clock: seconds by which deadlines pass, of any origin; the pace's, if there is one.
        alarms: how many there were of each kind; see `Stats.alarms`.

    Raises:
        SoonerError: a number below 1.
    """

    def __init__(
        self, model: Any, method: Method | str | None = None, *, max_rows: int = 8,
        prefill_chunk: int | None = None, pages: int | None = None, memory: int | None = None,
        paged: bool | None = None, prefix_caching: bool = True,
        graphs: str | GraphRecorder = "auto", compile: bool | Mapping[str, Any] = False,
        verify_every: int | None = None, pace: TokenPace | None = None,
    ) -> None:  # fmt: skip
        check_whole("max_rows", max_rows)
        check_model("model", model)
        self.pace = pace
        self.clock = time.monotonic if pace is None else pace.clock
        self.model, self.method = model, as_method(method)
        self.max_rows, self.prefill_chunk = max_rows, prefill_chunk
        self.waiting: deque[Request] = deque()
        self.prefilling: Request | None = None
        self.memory: EngineMemory | None = None
        self._admitted = 0
        if pages is not None or memory is not None:
            from .memory.manager import EngineMemory  # only with pages

            for name, number in (("pages", pages), ("memory", memory)):
                if number is not None:
                    check_whole(name, number)
            self.memory = EngineMemory(
                model, self.method, pages=pages, memory=memory, paged=paged, max_rows=max_rows,
                prefix_caching=prefix_caching,
            )  # fmt: skip
        self._prefiller = Prefiller(
            model, self.memory, max_rows=max_rows, chunk=prefill_chunk,
            launch={"graphs": graphs, "compile": compile, "verify_every": verify_every},
        )  # fmt: skip
        self.alarms = self._prefiller.alarms
        self._running = RunningBatch(self.memory)
        self._ended: list[Request] = []  # in the step under way
        self._is_stepping = False

    def add_request(
        self, inputs: Mapping[str, Any], *, method: Method | str | None = None,
        seed: int | None = None, on_tokens: OnTokens | None = None, logprobs: int | None = None,
        num_draft_tokens: int | None = None, media_keys: Sequence[str] = (), priority: float = 0.0,
        deadline: float | None = None, arrived: float | None = None, generated: Sequence[int] = (),
        **options: Unpack[GenerateOptions],
    ) -> Request:  # fmt: skip
        """Queue a request; its pixels are encoded when its turn comes.

        Args:
            inputs: what the model's processor returned, on any device; moved when it begins.
            method: another than the engine's, or the same with drafts of its own (`HSD`).
            seed: seeds every draw of this request.
            on_tokens: called with `(row, new tokens, how many were drafted)` after each commit. It
                may admit and cancel requests, this one among them.
            logprobs: keep the log-probabilities of its tokens, and of so many likeliest ones.
            num_draft_tokens: most draft tokens of a round, on a path of a tree; 0 decodes plainly.
            media_keys: hashes of the content of its pictures and clips, in the order of the
                prompt, for an engine with pages; without them it takes hashes of the pixels.
            priority: requests with a lower number begin first, and are preempted last; equal ones
                in the order of their arrival.
            deadline: when it ends at the latest, in seconds of `clock`; the tokens that it has
                generated until then are its answer, and its reason is `deadline`.
            arrived: time of its arrival, in seconds of `clock`; now by default.
            generated: ids that its one row generated before, elsewhere: it continues as if it had
                never stopped, and they count for limits, penalties and draws.
            options: anything that `sooner.generate` takes, such as `max_new_tokens`.
        """
        check_inputs(inputs)
        for name, number in (("logprobs", logprobs), ("num_draft_tokens", num_draft_tokens)):
            if number is not None:
                check_whole(name, number, 0)
        arguments = RequestOptions(
            options, seed, on_tokens, logprobs, num_draft_tokens, media_keys, tuple(generated)
        )
        ids = inputs.get("input_ids")
        rows = (options.get("num_return_sequences") or 1) * (1 if ids is None else len(ids))
        request = Request(
            inputs, arguments, self.method if method is None else as_method(method), rows,
            priority=priority, deadline=deadline,
            arrived=self.clock() if arrived is None else arrived,
        )  # fmt: skip
        self.add(request)
        return request

    def add(self, request: Request) -> None:
        """Queue a request that the caller has made, or one that waited with another engine.

        Raises:
            SoonerError: another number of `media_keys` than the inputs show.
        """
        request.tokens, request.finish_reasons, request.is_cancelled = None, [], False
        self._admitted += 1
        request.number = self._admitted
        if self.memory is not None:
            prompt_info = self.memory.describe(request.inputs, request.options.media_keys)
            request.prompt_info = prompt_info.continued(request.options.generated)
        self._wait(request)

    def _wait(self, request: Request) -> None:
        """Puts a request into the queue, behind those that come before it in order."""
        request.is_waiting = True
        ahead = sum(entry.order < request.order for entry in self.waiting)
        self.waiting.insert(ahead, request)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or decodes."""
        return not (self.waiting or self.running or self.prefilling)

    @property
    def running(self) -> list[Request]:
        """Requests that decode, in the order in which they joined."""
        return self._running.requests

    @property
    def batch(self) -> Decoding | None:
        """The rows that decode, if any do."""
        return self._running.decoding

    @property
    def launches_graphs(self) -> bool:
        """Whether steps are graphs or compiled, which each shape of them waits for once."""
        graphs, is_compiled = self._prefiller.launch["graphs"], self._prefiller.launch["compile"]
        device = self.model.get_input_embeddings().weight.device
        is_auto = isinstance(graphs, str)
        return bool(is_compiled or (graphs != "off" and (not is_auto or device.type == "cuda")))

    @property
    def alone(self) -> str | None:
        """Why no request may join another, in words; `None` if they may."""
        return self._prefiller.alone

    @property
    def pages(self) -> int:
        """Returns the pages of its memory; 0 for an engine without pages."""
        return 0 if self.memory is None else self.memory.pool.size

    @property
    def pages_used(self) -> int:
        """Pages that requests hold; those that only keep a prefix are not among them."""
        return 0 if self.memory is None else self.memory.pool.used

    @property
    def longest(self) -> int | None:
        """Tokens that a request of one row may have, prompt and answer; `None` is any number."""
        memory = self.memory
        return None if memory is None else memory.longest(self.method.largest_block())

    def step(self) -> list[Request]:
        """Prefills a chunk and decodes a round; returns the requests that have ended.

        Raises:
            SoonerError: a callback of a step called it.
        """
        if self._is_stepping:
            raise SoonerError("a callback can't call Engine.step; it may admit and cancel requests")
        self._is_stepping, self._ended = True, []
        try:
            self._finish_late()
            self._report_load()
            left = self.prefill_chunk or 1
            while left > 0 and (tokens := self._timed_prefill()):
                left -= tokens
            self._guarded(self._allocate)
            if self._running.active:
                began = time.perf_counter()
                self._guarded(self._running.round)
                if self.pace is not None:
                    self.pace.round = time.perf_counter() - began
            self._guarded(self._collect)
            self._finish_cancelled()
        finally:
            self._is_stepping = False
            ended, self._ended = self._ended, []  # an idle engine keeps no pixels
        return ended

    def _report_load(self) -> None:
        """Tell the method how many requests there are, for drafts that pay for few rows alone."""
        rows = self._running.active
        if self.prefilling is not None:
            rows += self.prefilling.rows
        waiting = sum(request.rows for request in self.waiting)
        self.method.expect(rows, waiting, self.max_rows)

    def run(self) -> None:
        """Decodes every request to its end."""
        while not self.is_idle:
            self.step()

    def cancel(self, request: Request, reason: Reason = "cancelled") -> None:
        """Ends a request before its time; `request.tokens` are those that it has generated.

        In a callback it ends with the step under way, and generates nothing more.
        """
        request.is_cancelled, request.cancelled_by = True, reason
        if not self._is_stepping:
            self._finish_cancelled()

    def close(self) -> None:
        """Ends every request."""
        for request in self._requests():
            self.cancel(request)

    def _requests(self) -> list[Request]:
        """Returns every request that has not ended."""
        prefilling = () if self.prefilling is None else (self.prefilling,)
        return [*self.waiting, *self.running, *prefilling]

    def _finish_late(self) -> None:
        """End the requests whose deadline has passed."""
        now = self.clock()
        late = [
            request
            for request in self._requests()
            if request.deadline is not None and request.deadline <= now
        ]
        for request in late:
            self.cancel(request, "deadline")
        if late:
            self._finish_cancelled()

    def _finish_cancelled(self) -> None:
        for request in [entry for entry in self.waiting if entry.is_cancelled]:
            self.waiting.remove(request)
            self._finish(request, [[] for _ in range(request.rows)], "cancelled")
        if self.prefilling is not None and self.prefilling.is_cancelled:
            self._finish_prefilling("cancelled")
        if any(request.is_cancelled for request in self.running):
            self._guarded(self._collect)

    def _finish(
        self,
        request: Request,
        tokens: list[list[int]],
        reasons: Reason | list[Reason],
        error: Exception | None = None,
    ) -> None:
        request.finish(tokens, reasons, None if error is None else self._explained(error, request))
        if self._is_stepping:
            self._ended.append(request)

    def _finish_all(self, endings: Iterable[Ending]) -> None:
        for ending in endings:
            self._finish(*ending)

    def _explained(self, error: Exception, request: Request) -> Exception:
        """Returns the error that a request reports; the variables of its frames are freed."""
        traceback.clear_frames(error.__traceback__)
        ids = request.inputs.get("input_ids")
        advice = (
            None if ids is None else out_of_memory(error, self.model, ids, request.max_new_tokens)
        )
        return advice or error

    def _guarded(self, act: Callable[[], None]) -> None:
        """Do something with the batch; if that fails, every request that decodes ends."""
        try:
            act()
        except Exception as error:
            self._finish_all(self._running.abandon(error))

    def _collect(self) -> None:
        self._finish_all(self._running.collect())

    def _timed_prefill(self) -> int:
        """As `_prefill`, its time counted for the request that it was spent on."""
        first = self.waiting[0] if self.waiting else None
        request = first if self.prefilling is None else self.prefilling
        if request is None:
            return 0
        pace, piece, active = self.pace, self._piece(request), self._running.active
        if pace is not None and not pace.allows(piece, request.arrived, self._running.output()):
            return 0
        began = time.perf_counter()
        tokens = self._prefill()
        if not request.is_waiting:
            seconds = time.perf_counter() - began
            request.prefill_seconds += seconds
            if pace is not None and active:  # alone it takes pixels and prompt at once
                pace.took(piece, seconds)
        if pace is not None and self.prefilling is None:
            request.began = pace.clock()
        return tokens

    def _piece(self, request: Request) -> tuple[str, int]:
        """Returns the kind and the size of what `_prefill` would do for a request beside others."""
        if self.prefilling is not None:
            tokens, kind = request.prefilled_tokens, "chunk"
        else:
            ids = request.inputs.get("input_ids")
            tokens = 0 if ids is None else ids.shape[1]
            kind = "pixels" if request.has_pixels else "whole"
        tokens = max(min(tokens, self.prefill_chunk or tokens), 1)
        return kind, (tokens - 1).bit_length()  # those of one power of two cost about the same

    def _prefill(self) -> int:
        """Prefills one chunk of a prompt, or encodes its pixels; a prefilled request then decodes.

        Returns how many tokens of a row that was if it does, and another request may be begun.
        """
        if self.prefilling is None:
            if not self._begin():
                return 0
            assert self.prefilling is not None
            if self.batch is not None and self.prefilling.has_pixels:
                return 0  # others decode: the pixels were this step's part
        request, tokens = self.prefilling, self.prefilling.prefilled_tokens
        rows = request.prefill
        assert rows is not None
        try:
            if not request.prefill_chunk():
                return 0
        except Exception as error:
            self._finish_prefilling("error", error)
            return 0
        request.mode = rows.stats.mode
        if not rows.rows.active or rows.failed:
            failure = next(iter(rows.failed.values()), None)
            self._finish_prefilling("error" if failure else None, failure)
        elif self._merge(request):
            self.prefilling = None
            return min(tokens, self.prefill_chunk or 1)
        return 0

    def _begin(self) -> bool:
        """Let the first request that waits be prefilled, if it may."""
        if not self.waiting or not self._can_begin(self.waiting[0]):
            return False
        request = self.waiting.popleft()
        try:
            is_ready = self._prefiller.begin(request, self.batch)
        except Exception as error:
            self._finish(request, [[] for _ in range(request.rows)], "error", error)
            return False
        if not is_ready:
            self.waiting.appendleft(request)
            return False
        self.prefilling = request
        return True

    def _can_begin(self, request: Request) -> bool:
        """Returns whether a request may be prefilled, to decode beside the rows that decode now."""
        if self.batch is None:
            return True
        if self.memory is not None and request.prompt_info is not None:
            block = request.method.largest_block()
            peers = sum(entry.rows == 1 for entry in self.running)
            if not self.memory.can_begin(request.prompt_info, request.rows, block, peers):
                return False
        joins = self.running[0].method.joins(request.method)
        fits = self._running.active + request.rows <= self.max_rows
        return self.alone is None and joins and fits

    def _merge(self, request: Request) -> bool:
        """Let prefilled rows decode, unless they have to wait for a batch of their own."""
        try:
            return self._running.merge(request)
        except Exception as error:  # half merged: neither can go on
            self._finish_all(self._running.abandon(error))
            self._finish_prefilling("error", error)
            return False

    def _finish_prefilling(self, reason: Reason | None, error: Exception | None = None) -> None:
        """End the request that was to decode next; `None` stands for the reasons of its rows."""
        request, self.prefilling = self.prefilling, None
        assert request is not None
        decoding = request.stop_prefill()
        rows, stats = decoding.rows, decoding.stats
        reasons = [rows.reasons[row] for row in range(request.rows)] if reason is None else reason
        if (strayed := stats.deviation) is not None:
            request.deviations = request.deviations or list(map(strayed.of, range(request.rows)))
            stats.deviation = None  # the batch never had these rows
        self._finish(request, rows.generated, reasons, error)
        if self.batch is not None and error is None:
            self.batch.stats.merge(stats, self.batch.rows.batch)
        decoding.failed.clear()  # an error's frames hold what holds the error
        close_batch(decoding)

    def _allocate(self) -> None:
        """Give every row that decodes pages for a round; preempt the last in order if needed."""
        while not self._running.allocate():
            young = [entry for entry in self.running if entry.rows == 1]
            if self.prefilling is not None and self.prefilling.rows == 1:
                young.append(self.prefilling)
            self._preempt(max(young, key=lambda request: request.order))

    def _preempt(self, request: Request) -> None:
        """Let a request of one row wait again, with the tokens that it has generated."""
        batch = self.batch
        assert batch is not None
        if request is self.prefilling:
            self.prefilling = None
            rows = request.stop_prefill()
            request.preempt(PreemptedRow.of(rows, 0, request.preempted))
            close_batch(rows)
        else:
            self._running.preempt(request)
        self._wait(request)
        assert request.preempted is not None
        batch.stats.note(f"a row of {len(request.preempted.output)} tokens was preempted")
        if not batch.rows.active:
            self._collect()
