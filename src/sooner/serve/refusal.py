"""Requests that get no action, and what they are told instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RefusedError(Exception):
    """An HTTP status with one line about it.

    Attributes:
        status: such as 422.
        text: what is wrong, and the way out.
        field: of the request that is at fault, if one is.
        headers: that go with it.
    """

    def __init__(
        self,
        status: int,
        text: str,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.text, self.field = status, text, field
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """`{"detail": ..., "field": ...}`."""
        told: dict[str, Any] = {"detail": self.text}
        if self.field is not None:
            told["field"] = self.field
        return told


def unreadable(text: str) -> RefusedError:
    """The body is no request at all."""
    return RefusedError(400, text)


def wrong(field: str, text: str) -> RefusedError:
    """A field is missing or wrong."""
    return RefusedError(422, text, field)


def too_late(waited: float) -> RefusedError:
    """The deadline passed before the request's turn came."""
    return RefusedError(
        504,
        f"the deadline passed after {1e3 * waited:.0f} ms in the queue, so nothing was computed; "
        "give more time, or send fewer requests",
        "deadline_ms",
    )


def too_many(limit: int, seconds: float) -> RefusedError:
    """As many requests are under way as the server takes.

    Args:
        seconds: after which there should be room.
    """
    wait = max(1, int(seconds + 0.999))
    return RefusedError(
        429,
        f"{limit} requests are under way already; come back in {wait} s",
        headers={"Retry-After": str(wait)},
    )


def stopping() -> RefusedError:
    """The server is going down."""
    return RefusedError(
        503, "the server is stopping; ask another one", headers={"Retry-After": "5"}
    )


def hung_up() -> RefusedError:
    """The client left; nobody reads this."""
    return RefusedError(499, "the client hung up")


def unknown_client() -> RefusedError:
    """The token is missing or another one."""
    return RefusedError(
        401,
        "the token is missing or wrong; send 'Authorization: Bearer TOKEN'",
        headers={"WWW-Authenticate": "Bearer"},
    )


def too_large(limit: int) -> RefusedError:
    """More bytes than the server reads."""
    return RefusedError(
        413,
        f"the request has more than {limit / 2**20:g} MiB; send the image encoded, or smaller",
        headers={"Connection": "close"},
    )


def too_slow(seconds: float) -> RefusedError:
    """The body did not come."""
    return RefusedError(408, f"the request was not sent within {seconds:g} s; send it again")
