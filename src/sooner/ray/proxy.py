"""Middleware of Ray Serve's proxy: affinity of requests, and replicas that are lost with them.

A request of which nothing was sent on yet is asked again when its replica dies, and where a replica
refuses it with a 503 that another one may not give. A stream that has begun ends with an error
event, and without `[DONE]`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .affinity import key_of

logger = logging.getLogger("sooner.serve")

TRIES = 3
"""Replicas that may be lost with a request before it is refused: it may be what kills them."""
LARGE = 64 << 10
"""Bytes of a body whose key is found in a thread: others would wait for it."""
LIMIT, SECONDS = 512 << 20, 60.0
"""Bytes and seconds of a body that is read for its key; a replica reads what is left."""
SESSION = b"x-session-id"
"""Ray Serve's header of a session."""
NO_RETRY = (b"x-should-retry", b"false")
LOST = ("replicas_lost", f"{TRIES} replicas were lost with this request; it is not tried again")
CUT = ("replica_lost", "the replica was lost in the middle of the answer; ask again")
GONE = ("draining", "the server is stopping or not ready; ask another one")


def middlewares() -> list[Middleware]:
    """Returns what Ray's proxy puts around itself; named in its environment."""
    return [Middleware(ProxyMiddleware)]


class ProxyMiddleware:
    """Middleware: reads a request, finds its key, and asks until there is an answer.

    Args:
        app: Ray Serve's proxy. It returns without an answer where the replica died before one, and
            without the answer's end where it died in the middle.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        messages, headers = await _body(receive), list(scope["headers"])
        if SESSION not in dict(headers):  # which clients may name themselves
            body = b"".join(message.get("body", b"") for message in messages)
            key = key_of(body) if len(body) < LARGE else await asyncio.to_thread(key_of, body)
            headers += [] if key is None else [(SESSION, key.encode())]
            del body
        for left in reversed(range(TRIES)):
            attempt = _Attempt(messages, receive, send, bool(left))
            await self.app({**scope, "headers": list(headers)}, attempt.receive, attempt.send)
            if await attempt.finish():
                return
            logger.warning("a replica was lost with a request, or refused it")
        await _refuse(send, LOST, NO_RETRY)


class _Attempt:
    """A request to one replica.

    Args:
        messages: of the request that were read.
        may_fail: another replica may be asked after this one.
    """

    def __init__(
        self, messages: list[Message], receive: Receive, send: Send, may_fail: bool
    ) -> None:
        self._messages, self._receive, self._send = list(messages), receive, send
        self._may_fail = may_fail
        self._head: Message | None = None  # sent with what comes behind it
        self._is_begun = self._is_whole = self._is_gone = self._is_silent = self._is_stream = False

    async def receive(self) -> Message:
        """Returns what was read of the request, then what comes."""
        message = self._messages.pop(0) if self._messages else await self._receive()
        self._is_gone |= message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        """Pass a message of the answer on, unless another replica is asked instead."""
        if message["type"] == "http.response.start":
            headers = [(name.lower(), value) for name, value in message.get("headers", ())]
            kind, status = dict(headers).get(b"content-type", b""), message["status"]
            if status == 404 and kind.startswith(b"text/plain"):  # the proxy's own: no application
                await _refuse(self._send, GONE, (b"retry-after", b"5"))
                self._is_begun = self._is_silent = True
            elif status == 503 and self._may_fail and NO_RETRY not in headers:
                self._is_silent = True
            else:
                self._head, self._is_stream = message, kind.startswith(b"text/event-stream")
            return
        self._is_whole |= not message.get("more_body", False)
        if self._is_silent:
            return
        if self._head is not None:
            self._is_begun = True
            await self._send(self._head)
            self._head = None
        await self._send(message)

    async def finish(self) -> bool:
        """Returns whether there is an answer, or nobody waits for one; ends a stream that was
        cut."""
        if self._is_begun and self._is_stream and not (self._is_whole or self._is_gone):
            event = f"data: {json.dumps(_error(CUT))}\n\n".encode()
            await self._send({"type": "http.response.body", "body": event, "more_body": False})
        return self._is_begun or self._is_gone


async def _body(receive: Receive) -> list[Message]:
    """Returns the messages of a body, as far as it comes in time and is not too large."""
    messages: list[Message] = []
    size = 0
    try:
        async with asyncio.timeout(SECONDS):
            while size <= LIMIT:
                messages.append(message := await receive())
                size += len(message.get("body", b""))
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        pass
    return messages


async def _refuse(send: Send, error: tuple[str, str], header: tuple[bytes, bytes]) -> None:
    content = json.dumps(_error(error)).encode()
    headers = [(b"content-type", b"application/json"), header]
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": content, "more_body": False})


def _error(error: tuple[str, str]) -> dict[str, Any]:
    code, text = error
    kind = "service_unavailable_error"
    return {"error": {"message": text, "type": kind, "param": None, "code": code}}
