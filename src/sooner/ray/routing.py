"""Routing of Ray Serve: requests go to the replica that knows their media.

A replica keeps pages of keys and values and encoded pictures of what it answered, so the second
question on a clip costs little there, and all of it elsewhere. `SessionMiddleware` writes the key
of a request into the header of Ray Serve's sessions, and `AffinityRouter` sends a session to its
replica. Keys are put on replicas by rendezvous hashing (Thaler and Ravishankar, "Using name-based
mappings to increase hit rates", 1998): only the keys of a replica that goes move.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Mapping
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX = 1024
"""Letters at the beginning of a prompt that decide where it goes. Prompts share pages of 256
tokens, which is about as much; a shorter one shares nothing and has no key."""
MEDIA = ("image_url", "video_url", "file")
"""Parts of a message that are no text; each has an object of its own name."""
LARGE = 64 << 10
"""Bytes of a body whose key is computed in a thread: others would wait for it."""
LIMIT = 512 << 20
"""Bytes of a body that is read for its key; a replica reads what is left."""
SESSION = b"x-session-id"
"""Ray Serve's header of a session."""


def middlewares() -> list[Middleware]:
    """Returns what Ray's proxy puts around itself; named in its environment."""
    return [Middleware(SessionMiddleware)]


class SessionMiddleware:
    """Middleware that names the session of a request by its key, unless the client has named one.

    Args:
        app: Ray Serve's proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or SESSION in dict(scope["headers"]):
            await self.app(scope, receive, send)
            return
        messages = await _body(receive)
        body = b"".join(message.get("body", b"") for message in messages)
        key = key_of(body) if len(body) < LARGE else await asyncio.to_thread(key_of, body)
        del body
        if key is not None:
            scope = {**scope, "headers": [*scope["headers"], (SESSION, key.encode())]}

        async def replay() -> Message:
            return messages.pop(0) if messages else await receive()

        await self.app(scope, replay, send)


async def _body(receive: Receive) -> list[Message]:
    """Returns the messages of a body, as far as it is not too large."""
    messages, size = [await receive()], 0
    while messages[-1].get("more_body", False) and size <= LIMIT:
        size += len(messages[-1].get("body", b""))
        messages.append(await receive())
    return messages


def key_of(body: bytes) -> str | None:
    """Returns the key of a request's body; `None` if it has none, or can't be read.

    It is of all media of the first message that has any: a clip keeps its replica whatever is asked
    about it, and a chat keeps it when more pictures come. Without media it is of the first `PREFIX`
    letters of the prompt, so that requests with the same system prompt share its pages.
    """
    try:
        request = json.loads(body)
        for message in request.get("messages", ()):
            if media := _media(message.get("content")):
                return _digest("media", *media)
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None  # the replica says what is wrong
    text = json.dumps(request.get("messages"))
    return None if len(text) < PREFIX else _digest("text", text[:PREFIX])


def _media(content: Any) -> list[str]:
    """Returns the addresses, data URIs and files' data of a message."""
    parts = content if isinstance(content, list) else ()
    media = [part[part["type"]] for part in parts if part["type"] in MEDIA]
    return [str(item.get("url") or item.get("file_data")) for item in media]


def _digest(*parts: str) -> str:
    data = "\0".join(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


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
