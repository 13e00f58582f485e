"""A client's request under way: its choices, the events of all of them in order, and the body of a
stream: chunks as they come, pings in silence, an error where there was one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from ..engine_thread import Tokens, nobody
from ..refusal import engine_failed, error_fields, past_deadline, refusal_of, stopping
from .answers import Answer, AnswerForm
from .choice import Choice, Update

if TYPE_CHECKING:
    from ..engine_thread import EngineThread

logger = logging.getLogger("sooner.serve")

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
SEND_SECONDS = 60.0
"""What a client may take to read what was sent, before it counts as gone."""
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventMail:
    """Events from the engine's thread to the event loop, which is woken once for all that came.

    A round tells every row's tokens at nearly the same time; a wake-up for each would cost more
    than what is done with them. Nor is every round worth one: where rounds are short, the loop's
    thread takes a core from the thread that decodes, and what it has in its caches.

    Args:
        interval: seconds after a wake-up in which there is another one only for what is urgent;
            whatever else comes waits for the first event after them.
    """

    def __init__(self, interval: float = 0.0) -> None:
        self.interval = interval
        self._pending: deque[Callable[[], None]] = deque()
        self._is_called = False
        self._emptied = -math.inf

    def put(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[], None], is_urgent: bool = True
    ) -> None:
        """Have `take` called in the loop, in order; in any thread.

        Raises:
            RuntimeError: the loop is closed.
        """
        self._pending.append(take)
        is_due = is_urgent or time.monotonic() - self._emptied >= self.interval
        if self._is_called or not (is_due or loop.is_closed()):
            return
        self._is_called = True
        try:
            loop.call_soon_threadsafe(self._empty)
        except BaseException:
            self._is_called = False
            raise

    def _empty(self) -> None:
        self._is_called = False  # first: what comes from here on calls again
        self._emptied = time.monotonic()
        while self._pending:
            self._pending.popleft()()


class Answering:
    """Submits the requests of choices, and turns what comes of them into updates.

    Whatever fails, every request is ended.

    Args:
        service: that decodes.
        choices: whose requests are submitted; their sinks are set here.
        clock: the service's seconds.
        mail: of the event loop that this runs in, shared by all that run there; a choice's first
            tokens and its end are urgent, and all of one that a stop string may end.

    Attributes:
        is_done: every request has ended.
    """

    def __init__(
        self,
        service: EngineThread,
        choices: Sequence[Choice],
        clock: Callable[[], float],
        mail: EventMail,
    ) -> None:
        self.service, self.choices, self.clock, self.mail = service, list(choices), clock, mail
        self._events: deque[tuple[Choice, Tokens | None]] = deque()
        self._news = asyncio.Event()
        self._submitted: list[Choice] = []
        self._begun: set[Choice] = set()  # that have told something; the engine's thread's own

    @property
    def is_done(self) -> bool:
        return all(choice.has_ended for choice in self.choices)

    def start(self) -> None:
        """Submit every request, or none.

        Raises:
            RefusedError: the service does not take one of them.
        """
        loop = asyncio.get_running_loop()
        for choice in self.choices:
            choice.request.sink = partial(self._tell, loop, choice)
        try:
            for choice in self.choices:
                self.service.submit(choice.request)
                self._submitted.append(choice)
        except Exception:
            self.cancel()
            for choice in self.choices[len(self._submitted) :]:
                choice.request.sink = nobody  # it never ends, and would hold itself
            raise

    def cancel(self) -> None:
        """Cancels the choices: the client left, or one choice failed: free every row."""
        for choice in self._submitted:
            self._cancel(choice)

    async def begun(self, seconds: float) -> None:
        """Wait for the first event, but not for longer.

        Raises:
            RefusedError: it is a failure.
        """
        await self._wait(seconds)
        if self._events:
            choice, event = self._events[0]
            if event is None:
                self._raise_if_failed(choice)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for events, but not for longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def updates(
        self, ping: float | None = None
    ) -> AsyncIterator[tuple[Choice, Update] | None]:
        """Yields what came, in order; `None` after every `ping` seconds without anything.

        Tokens of a choice that wait behind one another are one update.

        Raises:
            RefusedError: a request failed, or its deadline passed; the others are cancelled.
        """
        try:
            while not self.is_done:
                if self._events:
                    choice, event = self._events.popleft()
                    update = self._apply(choice, event)
                    while self._goes_on(choice):
                        update.extend(self._apply(*self._events.popleft()))
                    yield choice, update
                    continue
                self._news.clear()
                await self._wait(ping)
                if not self._events:
                    yield None
        finally:
            self.cancel()

    def _tell(self, loop: asyncio.AbstractEventLoop, choice: Choice, event: Tokens | None) -> None:
        """In the engine's thread; raises `RuntimeError` if the loop is closed, as a sink may."""
        is_urgent = event is None or choice.has_stops or choice not in self._begun
        self._begun.add(choice)
        self.mail.put(loop, partial(self._take, choice, event), is_urgent)

    def _take(self, choice: Choice, event: Tokens | None) -> None:
        self._events.append((choice, event))
        self._news.set()

    def _goes_on(self, choice: Choice) -> bool:
        """Returns whether the next event is more tokens of a choice that is not over."""
        if not self._events or choice.is_over:
            return False
        following, event = self._events[0]
        return following is choice and event is not None

    def _apply(self, choice: Choice, event: Tokens | None) -> Update:
        if event is not None:
            update = choice.add(event)
            if choice.is_over:  # a stop string, which only we know of
                self._cancel(choice)
            return update
        choice.has_ended = True
        self._raise_if_failed(choice)
        return choice.end()

    def _cancel(self, choice: Choice) -> None:
        if not (choice.has_ended or choice.is_cancelled):
            choice.is_cancelled = True
            self.service.cancel(choice.request)

    def _raise_if_failed(self, choice: Choice) -> None:
        request = choice.request
        if choice.is_over or request.finish_reason in ("stop", "length"):
            return
        if request.finish_reason == "deadline":
            raise past_deadline(self.clock() - request.arrived)
        if request.finish_reason == "cancelled":
            raise stopping()
        raise engine_failed(request.error)


async def frames(
    answering: Answering,
    form: AnswerForm,
    ping: float,
    totals: Callable[[], Answer] | None,
    name: str,
) -> AsyncIterator[bytes]:
    """Yields the body of a stream.

    Args:
        ping: seconds of silence after which the client is told that it is not forgotten.
        totals: of usage and metrics, if a last chunk has them.
        name: the request's id, for the log.
    """
    ended: set[int] = set()
    try:
        for opening in form.opening(answering.choices):
            yield _data(opening)
        async for event in answering.updates(ping):
            if event is None:
                yield PING
                continue
            choice, update = event
            if choice.index in ended:
                continue
            if choice.is_over:
                ended.add(choice.index)
            if (chunk := form.chunk(choice, update, choice.is_over)) is not None:
                yield _data(chunk)
        if totals is not None:
            yield _data(form.closing(totals()))
    except Exception as error:
        refusal = refusal_of(error, name)
        logger.info("%s ended late with %d: %s", name, refusal.status, refusal.text)
        yield _data({"error": error_fields(refusal)})
    yield DONE


def _data(chunk: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


class EventStream(StreamingResponse):
    """Sends frames until they end or the client is gone, whichever is first.

    Args:
        frames: of the body.
        on_end: called in any case, once nothing more is sent.
    """

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(frames, headers=HEADERS)
        self.on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            async with asyncio.timeout(SEND_SECONDS):
                await send(message)

        try:
            await super().__call__(scope, receive, send_in_time)
        except TimeoutError:
            logger.info("a client has read nothing for %g s and is cut off", SEND_SECONDS)
        finally:
            self.on_end()
