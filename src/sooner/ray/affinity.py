"""Which replica a request is best sent to: the one that has seen its media, or its prompt's start.

A replica keeps pages of keys and values and encoded pictures of what it answered, so the second
question on a clip costs little there, and all of it elsewhere. Keys are put on replicas by
rendezvous hashing (Thaler and Ravishankar, "Using name-based mappings to increase hit rates",
1998): the replica with the highest hash of (key, replica) has the key, so that only the keys of a
replica that goes move, and to one that comes only those that it has from then on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

PREFIX = 1024
"""Letters at the beginning of a prompt that decide where it goes. Prompts share pages of 256
tokens, which is about as much; a shorter one shares nothing and has no key."""

MEDIA = ("image_url", "video_url", "file", "input_audio")
"""Parts of a message that are no text; each has an object of its own name."""

DIGEST = 16
"""Bytes of a key."""

Replica = TypeVar("Replica", bound=str)


def key_of(body: bytes) -> bytes | None:
    """Returns the key of a request's body; `None` if it has none, or is no request that can be
    read.

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
    contents = [item for item in _items(request.get("messages")) if isinstance(item, dict)]
    for message in contents:
        if media := list(_media(message.get("content"))):
            return _digest("media", *media)
    text = request.get("prompt")
    if contents:
        text = "\n".join(f"{item.get('role')}: {_text(item.get('content'))}" for item in contents)
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


def _digest(*parts: str) -> bytes:
    digest = hashlib.blake2b(digest_size=DIGEST)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.digest()


def home_of(key: bytes, replicas: Sequence[Replica]) -> Replica:
    """Returns the replica that has a key."""
    return max(replicas, key=lambda name: _digest("home", key.hex(), name))


def ranked(
    key: bytes | None, loads: Mapping[Replica, int], threshold: int, turn: int = 0
) -> list[Replica]:
    """Returns replicas in the order in which a request should be offered to them.

    Args:
        key: of the request.
        loads: requests that each replica has.
        threshold: the key's replica is passed over if it has so many more than the least busy one.
        turn: any number that changes; decides among equally busy ones.
    """
    names = sorted(loads)
    spread = {name: (at - turn) % len(names) for at, name in enumerate(names)}
    order = sorted(names, key=lambda replica: (loads[replica], spread[replica]))
    if key is None or not order:
        return order
    home = home_of(key, names)
    if loads[home] - loads[order[0]] >= threshold:
        return order
    return [home, *(replica for replica in order if replica != home)]
