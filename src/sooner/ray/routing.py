"""Routing of Ray Serve: requests go to the replica that knows their media, again if it is lost.

A replica keeps pages of keys and values and encoded pictures of what it answered, so the second
question on a clip costs little there, and all of it elsewhere. `ProxyMiddleware` writes the key of
a request into the header of Ray Serve's sessions, and `AffinityRouter` sends a session to its
replica. Keys are put on replicas by rendezvous hashing (Thaler and Ravishankar, "Using name-based
mappings to increase hit rates", 1998): only the keys of a replica that goes move.

A request of which nothing was sent on yet is asked again when its replica dies, and where a replica
refuses it with a 503 that another one may not give. A stream that has begun ends with an error
event, and without `[DONE]`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import random
from collections.abc import Iterator, Mapping
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("sooner.serve")

PREFIX = 1024
"""Letters at the beginning of a prompt that decide where it goes. Prompts share pages of 256
tokens, which is about as much; a shorter one shares nothing and has no key."""
MEDIA = ("image_url", "video_url", "file", "input_audio")
"""Parts of a message that are no text; each has an object of its own name."""
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


def key_of(body: bytes) -> str | None:
    """Returns the key of a request's body; `None` if it has none, or can't be read.

    It is of all media of the first message that has any: a clip keeps its replica whatever is asked
    about it, and a chat keeps it when more pictures come. Without media it is of the first `PREFIX`
    letters of the prompt, so that requests with the same system prompt share its pages.
    """
    try:
        request = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(request, dict):
        return None
    messages = [item for item in _items(request.get("messages")) if isinstance(item, dict)]
    for message in messages:
        if media := list(_media(message.get("content"))):
            return _digest("media", *media)
    text = request.get("prompt")
    if messages:
        text = "\n".join(f"{item.get('role')}: {_text(item.get('content'))}" for item in messages)
    if not isinstance(text, str) or len(text) < PREFIX:
        return None
    return _digest("text", text[:PREFIX])


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _media(content: Any) -> Iterator[str]:
    """Yields what names or holds the media of a message: addresses, data URIs, files' data."""
    for part in _items(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in MEDIA:
            payload = part.get(kind)
            values = payload.values() if isinstance(payload, dict) else (payload,)
            # A detail or a file's name is short, and no part of what is seen.
            yield max((value for value in values if isinstance(value, str)), key=len, default="")


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in _items(content) if isinstance(part, dict))


def _digest(*parts: str) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def rank(key: str, loads: Mapping[str, int], threshold: int) -> list[str]:
    """Returns replicas in the order in which a request is offered to them.

    Args:
        key: of the request; empty for none.
        loads: requests that each replica has.
        threshold: the key's replica is passed over if it has so many more than the least busy one.
    """
    order = sorted(loads, key=lambda name: (loads[name], random.random()))
    if not (key and order):
        return order
    home = max(order, key=lambda name: _digest(key, name))
    if loads[home] - loads[order[0]] >= threshold:
        return order
    return [home, *(name for name in order if name != home)]


class AffinityRouter(RequestRouter):
    """Offers a request to the replica of its session, unless that one is too busy.

    Ray's own mixins hand replicas to requests in the order in which those came, whoever asked for
    which; without them a request gets the replica that was chosen for it.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Take `imbalanced_threshold`, see `rank`."""
        self._threshold = int(kwargs.get("imbalanced_threshold", 4))

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Returns replicas one by one, best first."""
        names = {item.replica_id.unique_id: item for item in candidate_replicas}
        lengths = self.replica_queue_len_cache
        loads = {name: lengths.get(item.replica_id) or 0 for name, item in names.items()}
        if pending_request is None:
            return [[names[name]] for name in rank("", loads, self._threshold)]
        pending_request.routing_context.should_backoff = True  # Ray tries in a busy loop otherwise
        session = pending_request.metadata.session_id
        return [[names[name]] for name in rank(session, loads, self._threshold)]
