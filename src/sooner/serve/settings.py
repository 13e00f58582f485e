"""How a server runs, checked before a model is loaded."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass

from ..errors import SoonerError

MEBI = 1 << 20


@dataclass(frozen=True)
class ServeSettings:
    """Address, limits and method of a server.

    Args:
        host: address to bind; one that other machines reach needs a token.
        port: 0 takes a free one.
        token: what clients send as `Authorization: Bearer TOKEN`; `None` asks for nothing.
        method: how actions are decoded; the policy's own choice by default.
        max_batch: robots that share a forward.
        max_queue: requests that may be under way at once; others are told to come back.
        window_ms: how long a batch waits for requests that are likely to come. It waits only
            after the batch before had company, so a lone robot never does.
        deadline_ms: of requests that name none; `None` is none.
        max_body: bytes of a request.
        max_bytes: of all bodies that are held at once; more are told to come back.
        max_connections: that may be open at once; more are refused.
        body_seconds: what sending a body may take.
        head_seconds: after which a connection without a request is closed.
        grace_seconds: what answers under way may take once the server is told to stop; those that
            take longer are refused.

    Raises:
        SoonerError: a value out of range, or an open address without a token.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    method: str | None = None
    max_batch: int = 16
    max_queue: int = 64
    window_ms: float = 5.0
    deadline_ms: float | None = None
    max_body: int = 16 * MEBI
    max_bytes: int = 128 * MEBI
    max_connections: int = 256
    body_seconds: float = 30.0
    head_seconds: float = 15.0
    grace_seconds: float = 30.0

    def __post_init__(self) -> None:
        _whole("port", self.port, 0, 65_535)
        for name in ("max_batch", "max_queue", "max_body", "max_bytes", "max_connections"):
            _whole(name, getattr(self, name), 1)
        for name in ("window_ms", "body_seconds", "head_seconds", "grace_seconds"):
            _number(name, getattr(self, name))
        if self.max_bytes < self.max_body:
            raise SoonerError(
                f"max_bytes is {self.max_bytes}, less than the {self.max_body} of one body "
                "(max_body); give more, or allow smaller bodies"
            )
        if self.deadline_ms is not None:
            _number("deadline_ms", self.deadline_ms, above=0)
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SoonerError("the token has characters that no HTTP header can carry; use ASCII")
        if self.token is not None and not self.token.strip():
            raise SoonerError("the token is empty; give a secret, or leave it out on a loopback")
        if self.token is None and not is_loopback(self.host):
            raise SoonerError(
                f"host '{self.host}' can be reached from other machines; give --token (or set "
                "SOONER_TOKEN), or bind 127.0.0.1"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name other than localhost is not trusted."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _whole(name: str, value: object, least: int, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        upto = f" to {most}" if most < math.inf else " or more"
        raise SoonerError(f"{name} is {value!r}; it must be a whole number of {least}{upto}")


def _number(name: str, value: object, above: float | None = None) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0 or value == above:  # type: ignore[operator,arg-type]
        least = "a number of 0 or more" if above is None else f"a number above {above:g}"
        raise SoonerError(f"{name} is {value!r}; it must be {least}")
