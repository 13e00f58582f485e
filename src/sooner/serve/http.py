"""What stands before the handlers: who may ask, ids of requests, limits of their bodies, and how a
body is read, each error with the path of its field.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import logging
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from reprlib import repr as brief  # of any type, size and depth, on a short line
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .refusal import BadRequestError, RefusedError, refused
from .settings import ServerSettings, is_loopback

LINGER, LINGER_SECONDS = 8, 5.0
"""A refused body is read and thrown away if it has no more than this many times the largest one
that is taken, until this many seconds pass without any of it, or `body_seconds` in all."""

Fields = TypeVar("Fields", bound="ApiFields")
logger = logging.getLogger("sooner.serve")
OPEN_PATHS = ("/health", "/ready")
"""What probes ask without a token; they are told less."""
HEADER = "X-Request-Id"
SAFE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""Ids of clients that are taken over; others could forge lines of the log."""

TYPES = {
    "image": "nested lists, base64 (PNG, JPEG, WebP, npy) or json_numpy",
    "messages": 'a list of objects such as {"role": "user", "content": "hello"}',
    "image_url": 'an object such as {"url": "data:image/png;base64,..."}',
    "video_url": 'an object such as {"url": "data:video/mp4;base64,..."}',
    "file": 'an object such as {"file_data": "data:application/pdf;base64,..."}',
    "stop": "a string or a list of strings",
    "content": "a string or a list of parts",
    "tool_choice": '"none", "auto", "required", or the name of a function as an object',
}
"""What fields take, where pydantic would name a type, or one member of a union alone."""
UNTAGGED = ("union_tag_invalid", "union_tag_not_found")
"""pydantic's errors of an object whose `type` is none that it knows, or missing."""


async def read_body(request: Request, settings: ServerSettings) -> bytes:
    """Returns the body of a request; a declared length is refused before anything is read.

    Raises:
        RefusedError: 413 if it has more than `max_body` bytes, 408 if it is too late.
        ClientDisconnect: the client left.
    """

    def check(size: int) -> None:
        if size > settings.max_body:
            text = (
                f"the request has more than {settings.max_body / 2**20:g} MiB; send the image "
                "encoded, or smaller"
            )
            raise RefusedError(413, text, headers={"Connection": "close"})

    check(declared_length(request.headers))
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_seconds):
            async for piece in request.stream():
                check(len(body) + len(piece))
                body += piece
    except TimeoutError:
        text = f"the request was not sent within {settings.body_seconds:g} s; send it again"
        raise RefusedError(408, text) from None
    return bytes(body)


def declared_length(headers: Headers) -> int:
    """Returns what `Content-Length` says; 0 for a body that comes in chunks."""
    header = headers.get("content-length", "")
    return int(header) if header.isascii() and header.isdecimal() else 0


class ApiFields(BaseModel):
    """Strict in types, deaf to names that it does not know."""

    model_config = ConfigDict(strict=True, extra="ignore")

    def faults(self) -> Iterator[tuple[str, str]]:
        """Yields fields that are wrong beside the others, and what is wrong with each.

        Raises:
            BadRequestError: as for such a field.
        """
        yield from ()


def parse(kind: type[Fields], body: bytes) -> Fields:
    """Read a request.

    Raises:
        BadRequestError: the body is no JSON, or a field is wrong; names its path.
    """
    try:
        request = kind.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, body) from None
    except RecursionError:
        raise BadRequestError(None, "the body is nested too deeply") from None
    for field, text in request.faults():
        raise BadRequestError(field, text)
    return request


def path_of(location: tuple[int | str, ...], value: Any, is_missing: bool = False) -> str:
    """Returns a field's path in the body, such as `messages[0].content`.

    pydantic names the members of unions in between; what is no key of the body is left out, unless
    it is the last one, and missing there.
    """
    path = ""
    for index, key in enumerate(location):
        is_last = is_missing and index == len(location) - 1
        if isinstance(key, int):
            path += f"[{key}]"
            value = value[key] if isinstance(value, list) and key < len(value) else None
        elif isinstance(value, Mapping) and (key in value or is_last):
            path += f".{key}" if path else key
            value = value.get(key)
    return path


def _refusal(error: ValidationError, body: bytes) -> BadRequestError:
    detail = error.errors(include_url=False)[0]
    if detail["type"] == "json_invalid" and not detail["loc"]:
        text = detail["msg"].partition(": ")[2] if body.strip() else "it is empty"
        return BadRequestError(None, f"the body is no JSON: {text}")
    if not detail["loc"]:
        return BadRequestError(None, f"the body is {brief(detail['input'])}; send an object")
    is_missing = detail["type"] == "missing"
    path = path_of(detail["loc"], json.loads(body), is_missing)
    name = path.rpartition(".")[2]
    if is_missing:
        return BadRequestError(path, f"{path} is missing")
    if detail["type"] in UNTAGGED:
        context = detail["ctx"]
        path = f"{path}.type"
        if "tag" not in context:
            return BadRequestError(path, f"{path} is missing")
        text = f"{path} is {brief(context['tag'])}; it should be one of {context['expected_tags']}"
        return BadRequestError(path, text)
    if name in TYPES and detail["type"].endswith("_type"):
        return BadRequestError(path, f"{path} is {brief(detail['input'])}; send {TYPES[name]}")
    expected = detail["msg"].replace("Input", "it", 1).replace("a valid array", "a list")
    expected = expected[0].lower() + expected[1:]
    return BadRequestError(path, f"{path} is {brief(detail['input'])}; {expected}")


class Guard:
    """Middleware that gives each request an id, in the answer's header and in the log, and refuses
    some before their bodies are read: without the token, and on the loopback by pages and under
    names of other machines.

    A page from elsewhere can make a browser send requests to `127.0.0.1`, under its own Origin or,
    with a name that it points there (DNS rebinding), under its own Host. There are no CORS headers,
    so no page from elsewhere reads an answer either.

    A connection that is closed while bytes of the client lie unread is reset, and many a client
    then drops the response that it has received already. So refusals, the application's too, are
    sent once the body has been read, unless that is far too large or does not come.

    Args:
        settings: `host` is where the server listens, `token` what clients send.
        page_headers: headers of the answers of a page. Browsers are prompted for its token, as the
            password of HTTP's Basic scheme; `None` for an API without a page.
    """

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, page_headers: Mapping[str, str] | None = None
    ) -> None:
        self.app, self.settings, self.page_headers = app, settings, page_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, headers = time.monotonic(), Headers(scope=scope)
        value = headers.get(HEADER, "")
        name = value if SAFE_ID.fullmatch(value) else uuid.uuid4().hex
        is_unread = True  # the end of the body has not come

        async def received() -> Message:
            nonlocal is_unread
            message = await receive()
            is_unread &= message.get("more_body", False)
            return message

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                if message["status"] >= 400 and is_unread:
                    await self._discard(received, declared_length(headers))
                sent = MutableHeaders(scope=message)
                sent[HEADER] = name
                for key, text in (self.page_headers or {}).items():
                    sent.setdefault(key, text)
                spent = 1e3 * (time.monotonic() - began)
                path = scope.get("raw_path", b"").decode("ascii", "replace")[:200]
                logger.info(
                    "%s %s %s %d %.1f ms", name, scope["method"], path, message["status"], spent
                )
            await send(message)

        is_known = self._has_token(headers)
        scope.setdefault("state", {}).update(request_id=name, is_known=is_known)
        refusal = self._refusal(headers, is_known or scope["path"] in OPEN_PATHS)
        app = self.app if refusal is None else refused(refusal)
        await app(scope, received, answer)

    async def _discard(self, receive: Receive, declared: int) -> None:
        """Read the rest of a body that is not wanted; what is far too large is left where it is."""
        limit, size = LINGER * self.settings.max_body, 0
        is_coming = declared <= limit
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.body_seconds):
                while is_coming and size <= limit:
                    async with asyncio.timeout(LINGER_SECONDS):
                        message = await receive()
                    size += len(message.get("body", b""))
                    is_coming = message.get("more_body", False)

    def _refusal(self, headers: Headers, may_enter: bool) -> RefusedError | None:
        if is_loopback(self.settings.host):
            host, origin = headers.get("host"), headers.get("origin")
            if host is not None and not is_local(f"//{host}"):
                return RefusedError(
                    403,
                    f"the Host is '{host}', and this server listens on the loopback; ask for "
                    "127.0.0.1 or localhost, or bind another --host with a --token",
                    code="host_not_allowed",
                )
            if origin is not None and not is_local(origin):
                return RefusedError(
                    403,
                    f"the Origin is '{origin}', and this server answers pages of this machine "
                    "alone",
                    code="origin_not_allowed",
                )
        if may_enter:
            return None
        scheme = "Bearer" if self.page_headers is None else 'Basic realm="sooner", charset="UTF-8"'
        return RefusedError(
            401,
            "the token is missing or wrong; send 'Authorization: Bearer TOKEN' (a client's "
            "api_key)",
            headers={"WWW-Authenticate": scheme},
        )

    def _has_token(self, headers: Headers) -> bool:
        if self.settings.token is None:
            return True
        kind, _, text = headers.get("authorization", "").partition(" ")
        token, origin = None, headers.get("origin")
        if kind.lower() == "bearer":
            token = text.strip().encode()
        # Browsers add a password by themselves, whatever page made them send the request.
        is_ours = origin is None or origin.partition("://")[2] == headers.get("host")
        if kind.lower() == "basic" and self.page_headers is not None and is_ours:
            with suppress(ValueError):
                token = base64.b64decode(text, validate=True).partition(b":")[2]
        return token is not None and hmac.compare_digest(token, self.settings.token.encode())


def is_local(address: str) -> bool:
    """Returns whether the host of a URL is this machine's loopback."""
    try:
        host = urlsplit(address).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


def name_of(request: Request) -> str:
    """Returns the id of a request."""
    return str(getattr(request.state, "request_id", ""))
