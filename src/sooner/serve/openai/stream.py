"""Server-sent events: chunks as they come, a ping in silence, an error where there was one."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..refusal import RefusedError
from .answering import Answering
from .answers import Answered, AnswerMetrics, TokenUsage
from .choice import Choice, Update
from .errors import body, known
from .forms import AnswerForm
from .tools import AnswerPiece

logger = logging.getLogger("sooner.serve")

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
SEND_SECONDS = 60.0
"""What a client may take to read what was sent, before it counts as gone."""
LOOKS = 4
"""How often in that time it is looked at: a timer for each frame would cost more than its text."""
Result = TypeVar("Result")

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def frames(
    answering: Answering,
    form: AnswerForm,
    ping: float,
    totals: Callable[[], tuple[TokenUsage, AnswerMetrics]] | None,
    name: str,
) -> AsyncIterator[bytes]:
    """Yields the body of a stream.

    Args:
        ping: seconds of silence after which the client is told that it is not forgotten.
        totals: of usage and metrics, if a last chunk has them.
        name: the request's id, for the log.
    """
    ended: set[int] = set()
    texts = TextFrames(form)
    try:
        for chunk in form.opening(answering.choices):
            yield _data(chunk)
        async for event in answering.updates(ping):
            if event is None:
                yield PING
                continue
            choice, update = event
            is_last = choice.is_over and choice.index not in ended
            if choice.index in ended:
                continue
            if is_last:
                ended.add(choice.index)
            if not is_last and (text := form.bare_text(update)) is not None:
                yield texts.frame(choice, text)
            elif (more := form.chunk(choice, update, is_last)) is not None:
                yield _data(more)
        if totals is not None:
            yield _data(form.closing(*totals()))
    except Exception as error:
        yield _failure(known(error, name), name)
    yield DONE


def _failure(refusal: RefusedError, name: str) -> bytes:
    logger.info("%s ended late with %d: %s", name, refusal.status, refusal.text)
    return f"data: {json.dumps(body(refusal))}\n\n".encode()


class TextFrames:
    """Frames of chunks that add text and nothing else, as most do: of each choice one is made by
    the form, and the others are that with their own text in it.

    Args:
        form: of the endpoint.
    """

    def __init__(self, form: AnswerForm) -> None:
        self.form = form
        self._around: dict[int, tuple[bytes, bytes]] = {}

    def frame(self, choice: Choice, text: str) -> bytes:
        """Returns the frame that adds `text` to a choice that goes on."""
        if choice.index not in self._around:
            mark = secrets.token_hex(16)  # which no name or id of a request has in it
            sample = self.form.chunk(choice, Update([AnswerPiece("content", mark)]), False)
            assert sample is not None
            before, _, after = _data(sample).partition(f'"{mark}"'.encode())
            self._around[choice.index] = before, after
        before, after = self._around[choice.index]
        return before + json.dumps(text, ensure_ascii=False).encode() + after


def _data(chunk: Answered) -> bytes:
    return b"data: " + chunk.model_dump_json(exclude_unset=True).encode() + b"\n\n"


async def hang_up(receive: Receive) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Returns the result of `work`, which is cancelled if the client hangs up.

    Raises:
        ClientDisconnect: it did.
    """
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(hang_up(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.wait({task, gone})
        if not task.cancelled():
            task.exception()  # seen, even if nobody waits for it
        # An error's frames would hold the task that holds the error, and with it all the pixels
        # that those frames had, until cycles are collected.
        del task, gone


class EventStream(Response):
    """Sends frames until they end or the client is gone, whichever is first.

    Args:
        frames: of the body.
        on_end: called in any case, once nothing more is sent.
    """

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        self.frames, self.on_end = frames, on_end
        self._sending: float | None = None  # since when, if a frame is being sent
        self.status_code, self.background = 200, None  # and no body, whose length would be told
        self.init_headers(HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.ensure_future(self._write(send))
        gone = asyncio.ensure_future(hang_up(receive))
        self._watch(writer)
        try:
            await asyncio.wait({writer, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._timer.cancel()
            writer.cancel()
            gone.cancel()
            await asyncio.wait({writer, gone})
            self.on_end()
        try:
            if not writer.cancelled():
                writer.result()
        finally:
            del writer, gone  # an error's frames would hold the task that holds the error

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        clock = asyncio.get_running_loop().time
        async for frame in self.frames:
            self._sending = clock()
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            self._sending = None
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _watch(self, writer: asyncio.Future[None]) -> None:
        """Cut off a client that has not read what was sent."""
        loop = asyncio.get_running_loop()
        if self._sending is not None and loop.time() - self._sending >= SEND_SECONDS:
            logger.info("a client has read nothing for %g s and is cut off", SEND_SECONDS)
            writer.cancel()
            return
        self._timer = loop.call_later(SEND_SECONDS / LOOKS, self._watch, writer)
