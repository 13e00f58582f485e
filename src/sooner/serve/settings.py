"""How a server runs, checked before a model is loaded."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from ..checks import check_fields, option
from ..errors import SoonerError

MEBI = 1 << 20


@dataclass(frozen=True)
class ServerSettings:
    """Address and limits of any server.

    Args:
        host: address to bind; others than the loopback need a token.
        port: 0 takes a free one.
        token: what clients send as `Authorization: Bearer TOKEN`; by default nothing is asked for.
        max_body: bytes of a request.
        max_bytes: of all bodies that are held at once; more are told to come back.
        max_connections: connections that may be open at once; more are refused.
        body_seconds: what sending a body may take.
        head_seconds: after which a connection without a request is closed.
        grace_seconds: what answers under way may take once the server is told to stop; those that
            take longer are refused.

    Raises:
        SoonerError: a value out of range, or an open address without a token.
    """

    host: str = option("127.0.0.1", metavar="ADDRESS")
    port: int = option(8000, 0, 65_535)
    token: str | None = option(None, metavar="SECRET")
    max_body: int = option(16 * MEBI, 1)
    max_bytes: int = option(128 * MEBI, 1)
    max_connections: int = option(256, 1)
    body_seconds: float = option(30.0, 0)
    head_seconds: float = option(15.0, 0)
    grace_seconds: float = option(30.0, 0)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.max_bytes < self.max_body:
            raise SoonerError(
                f"max_bytes is {self.max_bytes}, less than the {self.max_body} of one body "
                "(max_body); give more, or allow smaller bodies"
            )
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise SoonerError("the token has characters that no HTTP header can carry; use ASCII")
        if self.token is not None and not self.token.strip():
            raise SoonerError("the token is empty; give a secret, or leave it out on a loopback")
        if self.token is None and not is_loopback(self.host):
            raise SoonerError(
                f"host '{self.host}' can be reached from other machines; give --token (or set "
                "SOONER_TOKEN), or bind 127.0.0.1"
            )


@dataclass(frozen=True)
class ServeSettings(ServerSettings):
    """The server of a robot policy.

    Args:
        method: how actions are decoded; the policy's own choice by default.
        max_batch: robots that share a forward.
        max_queue: requests that may be under way at once; others are told to come back.
        window_ms: how long a batch waits for requests that are likely to come. It waits only
            if the previous batch had several requests, so a single robot never waits.
        deadline_ms: deadline of requests that name none; by default there is none.

    Raises:
        SoonerError: as `ServerSettings`.
    """

    method: str | None = None
    max_batch: int = option(16, 1)
    max_queue: int = option(64, 1)
    window_ms: float = option(5.0, 0, metavar="MS")
    deadline_ms: float | None = option(None, 0, above=True, metavar="MS")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name other than localhost is not trusted."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
