"""Error responses: an HTTP status and one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse, Response

from ..tasks.act.observation import FieldError, UnreadableError

LONGEST = 400
"""Characters of what a client is told."""


class RefusedError(Exception):
    """Holds an HTTP status with one line about it.

    Attributes:
        status: such as 422.
        text: what is wrong, and the way out.
        field: of the request that is at fault, if one is.
        code: a word for programs, such as `context_length_exceeded`; of OpenAI's form.
        headers: that go with it.
    """

    def __init__(
        self,
        status: int,
        text: str,
        field: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status, self.text, self.code = status, _line(text), code
        self.field = None if field is None else _line(field)
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """Returns `{"detail": ..., "field": ...}`."""
        content: dict[str, Any] = {"detail": self.text}
        if self.field is not None:
            content["field"] = self.field
        return content


def refused(error: RefusedError) -> Response:
    """Returns the answer to a request that gets nothing else."""
    return JSONResponse(error.body(), error.status, headers=error.headers)


def unreadable(text: str) -> RefusedError:
    """The body is no request at all."""
    return RefusedError(400, text)


def wrong(field: str, text: str) -> RefusedError:
    """A field is missing or wrong."""
    return RefusedError(422, text, field)


def of_field(error: FieldError) -> RefusedError:
    """A field that can't be read is no request; any other is a wrong value."""
    status = 400 if isinstance(error, UnreadableError) else 422
    return RefusedError(status, str(error), error.field)


def too_late(waited: float) -> RefusedError:
    """Returns the deadline passed before the request's turn came."""
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


def too_many_bytes(limit: int) -> RefusedError:
    """As many bytes of bodies are held as the server takes."""
    return RefusedError(
        429,
        f"requests of {limit / 2**20:g} MiB are being read already; come back in 1 s",
        headers={"Retry-After": "1"},
    )


def too_many_connections(limit: int) -> RefusedError:
    """As many connections are open as the server takes."""
    return RefusedError(
        503,
        f"{limit} connections are open already; come back in 1 s, or share one connection",
        headers={"Retry-After": "1", "Connection": "close"},
    )


def not_ready(state: str, fault: str | None = None) -> RefusedError | None:
    """Returns why a server in a state takes no request; `None` if it does.

    Args:
        state: see `jobs.ServiceState`.
        fault: name of the error that it failed with.
    """
    if state == "warming":
        text = "the model is warming up; come back in 5 s"
        return RefusedError(503, text, code="warming_up", headers={"Retry-After": "5"})
    if state == "draining":
        return stopping()
    return failed(fault or "unknown") if state == "failed" else None


def failed(fault: str) -> RefusedError:
    """The server itself failed, and nothing was computed."""
    text = f"the server failed ({fault}) and nothing was computed; send the request again soon"
    return RefusedError(503, text, code="failed", headers={"Retry-After": "2"})


def stopping() -> RefusedError:
    """The server is going down."""
    text = "the server is stopping; ask another one"
    return RefusedError(503, text, code="draining", headers={"Retry-After": "5"})


def hung_up() -> RefusedError:
    """Tells that the client left; nobody reads this."""
    return RefusedError(499, "the client hung up")


def unknown_client() -> RefusedError:
    """The token is missing or another one."""
    return RefusedError(
        401,
        "the token is missing or wrong; send 'Authorization: Bearer TOKEN' (a client's api_key)",
        headers={"WWW-Authenticate": "Bearer"},
    )


def too_large(limit: int) -> RefusedError:
    """Returns more bytes than the server reads."""
    return RefusedError(
        413,
        f"the request has more than {limit / 2**20:g} MiB; send the image encoded, or smaller",
        headers={"Connection": "close"},
    )


def too_slow(seconds: float) -> RefusedError:
    """The body did not come."""
    return RefusedError(408, f"the request was not sent within {seconds:g} s; send it again")


def _line(text: str) -> str:
    """Returns one line of valid Unicode, whatever a client made the text quote."""
    clean = " ".join(text.encode("utf-8", "replace").decode().split())
    return clean if len(clean) <= LONGEST else clean[:LONGEST] + "…"
