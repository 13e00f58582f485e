"""What stands before the replicas: takes requests, has one of them answer, and passes that on.

It reads no pixel and loads no model. Everything but `/health`, `/ready` and `/metrics` is the
replicas' to answer. A request of which nothing was sent on yet is asked again when its replica
dies; a stream that has begun ends with an error event, and without `[DONE]`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..serve.bodies import Bodies
from ..serve.openai.errors import ApiError, body, draining, known, refused
from ..serve.openai.guard import Guard
from ..serve.openai.stream import EventStream, unless_gone
from ..serve.refusal import RefusedError, too_many
from ..serve.request_ids import HEADER, RequestIds, name_of
from ..serve.settings import ChatSettings
from .affinity import key_of
from .exchange import Ack, Head, PassedRequest
from .front_metrics import FrontMetrics
from .replica import ReplicaReport

logger = logging.getLogger("sooner.serve")

TRIES = 3
"""Replicas that may be lost with a request before it is refused: it may be what kills them."""
TAKE_SECONDS = 30.0
"""How long a request waits for a replica that takes it."""
LARGE = 64 << 10
"""Bytes of a body whose key is found in a thread: others would wait for it."""
HOP_HEADERS = (b"authorization", b"connection", b"content-length", b"host", b"origin",
       b"transfer-encoding", b"x-request-id")  # fmt: skip
"""Headers that end here: token, host and origin are checked, and the body is whole."""
REPLICA = b"x-sooner-replica"
"""Header of an answer: who answered."""
NO_RETRY = (b"x-should-retry", b"false")
"""Header of a 503 that another replica would give, too."""


class ReplicaLostError(Exception):
    """The replica that had a request is no more."""


class Replicas(Protocol):
    """The replicas that answer."""

    def ask(self, request: PassedRequest) -> AsyncGenerator[Ack | Head | bytes, None]:
        """`Ack`, then `Head`, then the body as it comes; closing it ends the request.

        Raises:
            ReplicaLostError: the replica died.
            RefusedError: none takes it.
        """

    async def reports(self, metrics: bool = False) -> list[ReplicaReport]:
        """Returns how those are that answer in time."""


class PassedAnswer:
    """A replica's answer to one request, taken piece by piece.

    Attributes:
        replica: who answers; empty as long as nobody does.
    """

    def __init__(self, pieces: AsyncGenerator[Ack | Head | bytes, None]) -> None:
        self.pieces, self.replica = pieces, ""
        self.head = Head(0, ())
        self.first = b""

    @property
    def is_stream(self) -> bool:
        kinds = [value for name, value in self.head.headers if name.lower() == b"content-type"]
        return any(kind.startswith(b"text/event-stream") for kind in kinds)

    async def begin(self) -> None:
        """Wait for the head and what comes first: all of an answer that is no stream.

        Raises:
            ReplicaLostError: the replica died before that.
            RefusedError: none takes it in time.
        """
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                ack = await anext(self.pieces, None)
        except TimeoutError:
            raise _nobody() from None
        if isinstance(ack, Ack):
            self.replica = ack.replica
        head = await anext(self.pieces, None)
        if not isinstance(head, Head):
            raise ReplicaLostError("the answer ended before it began")
        self.head = head
        if self.is_stream:
            first = await anext(self.pieces, b"")
            self.first = first if isinstance(first, bytes) else b""
        else:
            self.first = b"".join(
                [piece async for piece in self.pieces if isinstance(piece, bytes)]
            )

    async def close(self) -> None:
        """Tell the replica that nobody waits any more."""
        await self.pieces.aclose()

    @property
    def is_refusal(self) -> bool:
        """This replica can't answer now; another one may."""
        return self.head.status == 503 and NO_RETRY not in self.head.headers


class Front:
    """The application before the replicas.

    Args:
        replicas: that answer.
        settings: limits of one replica, the address and the token.
        most: replicas that there may be; more requests than they hold are told to come back.
        on_close: told how many requests are under way, once nothing new is taken.

    Attributes:
        under_way: requests that are read, asked or answered.
        app: with tokens, hosts and requests' ids looked at.
    """

    def __init__(
        self,
        replicas: Replicas,
        settings: ChatSettings,
        maximum: int = 1,
        on_close: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.replicas, self.settings, self.on_close = replicas, settings, on_close
        self.maximum = maximum * room(settings)
        self.bodies = Bodies(settings)
        self.under_way = 0
        self.metrics = FrontMetrics(lambda: self.under_way)
        self.is_closing = self._is_over = False
        self._is_hurried, self._left = asyncio.Event(), asyncio.Event()
        self._work: set[asyncio.Task[Any]] = set()
        self.app = RequestIds(Guard(self, settings, self.bodies))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":  # uvicorn goes on without
            return
        request = Request(scope, receive)
        routes = {"/health": self.health, "/ready": self.ready, "/metrics": self.scraped}
        if (route := routes.get(request.url.path)) is not None and request.method in (
            "GET",
            "HEAD",
        ):
            await (await route(request))(scope, receive, send)
            return
        response = await self._passed(request)
        await response(scope, receive, send)

    async def close(self) -> None:
        """Take nothing new, and wait until what is under way has ended, `grace_seconds` at most;
        what is left then is told that the server stops."""
        if self.is_closing:
            return
        self.is_closing = True
        if self.under_way:
            self.on_close(self.under_way)
            waiting = [
                asyncio.ensure_future(event.wait()) for event in (self._left, self._is_hurried)
            ]
            grace = self.settings.grace_seconds
            await asyncio.wait(waiting, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            for event in waiting:
                event.cancel()
        self._is_over = True
        for work in list(self._work):
            work.cancel()

    def hurry(self) -> None:
        """End the grace of a `close` that is under way."""
        self._is_hurried.set()

    async def health(self, request: Request) -> Response:
        """Returns whether any replica's engine goes round."""
        reports = await self.replicas.reports()
        is_well = any(report.status in ("ok", "draining") for report in reports)
        answer: dict[str, Any] = {"status": "ok" if is_well else "failed"}
        if request.state.is_known:
            answer["replicas"] = [
                {
                    "replica": report.name,
                    "status": report.status,
                    "seconds_since_tick": round(report.seconds_since_tick, 3),
                    "running": report.running,
                    "waiting": report.waiting,
                }
                for report in sorted(reports, key=lambda report: report.name)
            ]
        return JSONResponse(answer, 200 if is_well else 503)

    async def ready(self, request: Request) -> Response:
        """Returns whether requests are taken."""
        if self.is_closing:
            return JSONResponse({"status": "draining"}, 503)
        is_ready = any(report.status == "ok" for report in await self.replicas.reports())
        return JSONResponse(
            {"status": "ready" if is_ready else "warming"}, 200 if is_ready else 503
        )

    async def scraped(self, request: Request) -> Response:
        """Returns metrics of all replicas, with a label that tells them apart, and of the front."""
        text = self.metrics.text(await self.replicas.reports(metrics=True))
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _passed(self, request: Request) -> Response:
        slot = _Place(self)
        try:
            return await self._admitted(request, slot)
        except Exception as error:
            slot.leave()
            return self.bodies.refusal(refused(known(error, name_of(request))))
        except BaseException:
            slot.leave()
            raise

    async def _admitted(self, request: Request, slot: _Place) -> Response:
        if self.is_closing:
            raise draining()
        if self.under_way >= self.maximum:
            raise too_many(self.maximum, 1.0)
        slot.take()
        async with self.bodies.read(request) as content:
            key = await self._key(request, content)
            forwarded = PassedRequest(
                request.method,
                request.url.path,
                request.scope.get("query_string", b""),
                _headers(request),
                content,
                key,
            )
            answer = await unless_gone(request, self._ended_by_closing(self._ask(forwarded)))
        headers = [
            (name, value) for name, value in answer.head.headers if name.lower() not in HOP_HEADERS
        ]
        headers.append((REPLICA, answer.replica.encode()))
        if not answer.is_stream:
            slot.leave()
            return _Sent(answer.head.status, headers, answer.first)
        return _PassedStream(self._frames(answer), headers, slot, answer)

    async def _key(self, request: Request, content: bytes) -> bytes | None:
        if request.method != "POST" or not content:
            return None
        if len(content) < LARGE:
            return key_of(content)
        return await asyncio.to_thread(key_of, content)

    async def _ask(self, request: PassedRequest) -> PassedAnswer:
        """Returns the beginning of an answer, of another replica if one is lost.

        Raises:
            ApiError: as many were lost as `TRIES`.
        """
        for left in reversed(range(TRIES)):
            answer = PassedAnswer(self.replicas.ask(request))
            try:
                await answer.begin()
            except ReplicaLostError as error:
                self.metrics.lost.inc()
                logger.warning("replica '%s' was lost with a request: %s", answer.replica, error)
            except BaseException:
                await answer.close()
                raise
            else:
                if not (left and answer.is_refusal):
                    return answer
                await answer.close()
            if left:
                self.metrics.retried.inc()
            request = replace(request, avoid=request.avoid | {answer.replica})
        raise _lost()

    async def _frames(self, answer: PassedAnswer) -> AsyncGenerator[bytes, None]:
        """Yields the body of a stream, with an error at its end if it has no other."""
        try:
            yield answer.first
            while True:
                piece = await self._ended_by_closing(_next(answer.pieces))
                if piece is None:
                    return
                if isinstance(piece, bytes):
                    yield piece
        except Exception as error:
            if isinstance(error, ReplicaLostError):
                self.metrics.cut.inc()
                logger.warning("replica '%s' was lost with a stream: %s", answer.replica, error)
            refusal = error if isinstance(error, RefusedError) else _cut()
            yield f"data: {json.dumps(body(refusal))}\n\n".encode()
        finally:
            await answer.close()

    async def _ended_by_closing(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Returns the result of `work`, which ends when the grace does.

        Raises:
            ApiError: it did.
        """
        task = asyncio.ensure_future(work)
        self._work.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._is_over:
                raise draining() from None
            raise
        finally:
            self._work.discard(task)


class _Place:
    """A request's place among those under way; given back once."""

    def __init__(self, front: Front) -> None:
        self.front, self.is_counted = front, False

    def take(self) -> None:
        self.is_counted = True
        self.front.under_way += 1

    def leave(self) -> None:
        if not self.is_counted:
            return
        self.is_counted = False
        self.front.under_way -= 1
        if not self.front.under_way and self.front.is_closing:
            self.front._left.set()


class _Sent(Response):
    """A whole answer with the headers that it had."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], content: bytes) -> None:
        self.status_code, self.body, self.background = status, content, None
        length = (b"content-length", str(len(content)).encode())
        self.raw_headers = [*headers, length]


class _PassedStream(EventStream):
    """A stream with the headers that it had."""

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        headers: list[tuple[bytes, bytes]],
        slot: _Place,
        answer: PassedAnswer,
    ) -> None:
        super().__init__(frames, slot.leave)
        self.raw_headers = headers
        self._passed, self._answer = frames, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # The replica should know of a client that left, be it before the first frame.
            await self._passed.aclose()
            await self._answer.close()


async def _next(pieces: AsyncIterator[Any]) -> Any:
    return await anext(pieces, None)


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    headers = [
        (name, value) for name, value in request.headers.raw if name.lower() not in HOP_HEADERS
    ]
    extra = [(b"host", b"localhost"), (HEADER.lower().encode(), name_of(request).encode())]
    return [*headers, *extra]


def room(settings: ChatSettings) -> int:
    """Returns requests that one replica holds."""
    return settings.max_rows + settings.max_queue


def _nobody() -> ApiError:
    return ApiError(
        503,
        f"no replica took the request within {TAKE_SECONDS:g} s; come back in 5 s",
        None,
        "no_replica",
        {"Retry-After": "5"},
    )


def _lost() -> ApiError:
    return ApiError(
        503,
        f"{TRIES} replicas were lost with this request, so it is not tried again; the log tells "
        "more",
        None,
        "replicas_lost",
        {"x-should-retry": "false"},
    )


def _cut() -> ApiError:
    return ApiError(
        503,
        "the replica was lost in the middle of the answer; ask again",
        None,
        "replica_lost",
    )
