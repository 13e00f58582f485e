"""Many requests in one batch: each joins behind its prefill while others decode, and leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .checks import check_whole
from .decoding.loop import Decoding, OnTokens
from .errors import UnsupportedError
from .generation import session_of
from .methods import Autoregressive, Method

if TYPE_CHECKING:
    from .decoding.graphs import GraphRecorder


@dataclass(eq=False)
class Request:
    """What one call of `Engine.admit` asked for.

    Attributes:
        inputs, options: as they were given.
        tokens: the new tokens of each row, once the request has ended.
        error: why it ended without any, if it could not be begun.
        first: original row of the batch that it begins at, once it decodes.
    """

    inputs: Mapping[str, Any] = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    tokens: list[list[int]] | None = None
    error: Exception | None = None
    first: int = field(default=0, repr=False)

    @property
    def rows(self) -> int:
        copies = self.options.get("num_return_sequences") or 1
        return len(self.inputs["input_ids"]) * copies


class Engine:
    """Continuous batching over one model and one method.

    Every `step` prefills a chunk of one waiting prompt and decodes one round of all rows that are
    under way. A prompt that is prefilled joins them at once, if there is room. The ids of a greedy
    request are those that it gets alone (fp32; elsewhere up to ties).

    A method that decodes only rows that were admitted together, such as `ParallelVLM`, is given one
    request at a time.

    Args:
        model: a loaded HF model.
        method: how to decode; plain by default.
        max_rows: rows that decode together; a request with more has a batch of its own.
        prefill_chunk: prompt tokens of a row that one step prefills; `None` is the whole prompt.
            What listens to a whole prompt, and families whose decoder takes pixels that can't be
            split, prefill it at once.
        graphs, compile: how steps are launched; see `sooner.generate`.

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
        self._next: tuple[Request, Decoding, Iterator[None]] | None = None  # being prefilled

    def admit(
        self,
        inputs: Mapping[str, Any],
        *,
        seed: int | None = None,
        on_tokens: OnTokens | None = None,
        **options: Any,
    ) -> Request:
        """Queue a request; its pixels are encoded when its turn comes.

        Args:
            inputs: what the model's processor returned.
            seed: seeds every draw of this request.
            on_tokens: called with `(row, new tokens, how many were drafted)` after each commit.
            options: anything that `model.generate` takes, such as `max_new_tokens`.
        """
        request = Request(inputs, {"seed": seed, "on_tokens": on_tokens, **options})
        self.waiting.append(request)
        return request

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or decodes."""
        return not (self.waiting or self.running or self._next)

    def step(self) -> list[Request]:
        """Prefill a chunk, decode a round; returns the requests that have ended."""
        failed = self._prefill()
        batch = self.batch
        if batch is not None and batch.rows.active:
            batch.round()
        return failed + self._collect()

    def run(self) -> None:
        """Decode every request that was admitted to its end."""
        while not self.is_idle:
            self.step()

    def cancel(self, request: Request) -> None:
        """End a request before its time; `request.tokens` is what it said so far."""
        if request in self.waiting:
            self.waiting.remove(request)
            request.tokens = [[] for _ in range(request.rows)]
        elif self._next is not None and self._next[0] is request:
            _, decoding, chunks = self._next
            self._next = None
            chunks.close()  # type: ignore[attr-defined]
            decoding.close()
            request.tokens = decoding.rows.generated
        elif request in self.running and self.batch is not None:
            for row in range(request.first, request.first + request.rows):
                self.batch.drop(row)
            self._collect()

    def close(self) -> None:
        """End every request."""
        for request in [*self.waiting, *self.running]:
            self.cancel(request)
        if self._next is not None:
            self.cancel(self._next[0])

    def _prefill(self) -> list[Request]:
        """One chunk of a prompt; lets a request whose prefill has ended decode.

        Returns the request if it can't be begun.
        """
        if self._next is None and (not self.waiting or not self._has_room(self.waiting[0])):
            return []
        request = self.waiting[0] if self._next is None else self._next[0]
        try:
            _, decoding, chunks = self._next = self._next or self._open(self.waiting.popleft())
            if next(chunks, self) is not self:
                return []  # more chunks are to come
        except Exception as error:
            if self._next is not None:
                self._next[1].close()
            self._next, request.error, request.tokens = None, error, []
            return [request]
        if self._start(request, decoding):
            self._next = None
        return []

    def _open(self, request: Request) -> tuple[Request, Decoding, Iterator[None]]:
        options = {**self.launch, **request.options}
        if self.prefill_chunk is not None and not self.method.needs_whole_prompt:
            options.setdefault("prefill_chunk_size", self.prefill_chunk)
        session = session_of(self.model, request.inputs, self.method, **options)
        session.target.cache.max_rows = self.max_rows
        if not session.target.adapter.may_split(session.prompt):
            session.prefill_chunk = None
        decoding = Decoding(session, self.batch)
        return request, decoding, decoding.prefill()

    def _start(self, request: Request, decoding: Decoding) -> bool:
        """Let prefilled rows decode, unless they have to wait for a batch of their own."""
        if self.batch is None:
            self.batch = decoding
        else:
            try:
                request.first = self.batch.join(decoding)
            except UnsupportedError:
                return False
        self.running.append(request)
        return True

    def _has_room(self, request: Request) -> bool:
        active = 0 if self.batch is None else len(self.batch.rows.active)
        return not active or active + request.rows <= self.max_rows

    def _collect(self) -> list[Request]:
        """The requests whose last row has ended; a batch without rows is closed."""
        batch = self.batch
        if batch is None:
            return []
        active = set(batch.rows.active)
        ended = []
        for request in self.running:
            rows = range(request.first, request.first + request.rows)
            if active.isdisjoint(rows):
                ended.append(request)
                request.tokens = [batch.release(row) for row in rows]
        self.running = [request for request in self.running if request.tokens is None]
        if not active:
            batch.close()
            self.batch = None
        return ended
