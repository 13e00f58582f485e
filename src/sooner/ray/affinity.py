"""Where a request is best sent: to the replica that has seen its media, or its prompt's start.

A replica keeps pages of keys and values and encoded pictures of what it answered, so the second
question on a clip costs little there, and all of it elsewhere. `proxy.ProxyMiddleware` writes the
key of a request into the header of Ray Serve's sessions, and `router.AffinityRouter` sends a
session to its replica. Keys are put on replicas by rendezvous hashing (Thaler and Ravishankar,
"Using name-based mappings to increase hit rates", 1998): only the keys of a replica that goes move.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

PREFIX = 1024
"""Letters at the beginning of a prompt that decide where it goes. Prompts share pages of 256
tokens, which is about as much; a shorter one shares nothing and has no key."""
MEDIA = ("image_url", "video_url", "file", "input_audio")
"""Parts of a message that are no text; each has an object of its own name."""


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
