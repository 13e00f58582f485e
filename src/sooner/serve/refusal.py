"""Error responses: an HTTP status and one line, in the form of OpenAI's API.

400: a field is wrong (`param` names it) or the prompt is too long. 401: no token. 403: a Host or an
Origin that is not this machine's. 404, 405: no such path or model, or another method. 408, 413: the
body did not come, or is too large. 429: full, `Retry-After` says when to come back. 503: warming
up, draining or failed. 504: the deadline passed, and the row is free again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from ..errors import FieldError, SoonerError, is_out_of_memory

logger = logging.getLogger("sooner.serve")

LONGEST = 400
"""Characters of what a client is told."""
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients send 5xx again by themselves, unless they are told that it is of no use."""


class RefusedError(Exception):
    """Holds an HTTP status with one line about it.

    Attributes:
        status: such as 400.
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


class BadRequestError(RefusedError):
    """400: a field is missing or wrong.

    Args:
        field: its path in the body, such as `messages[0].content[1].image_url.url`.
        text: what is wrong, and the way out.
    """

    def __init__(self, field: str | None, text: str, code: str | None = None) -> None:
        super().__init__(400, text, field, code)


def refused(error: RefusedError) -> Response:
    """Returns a refusal in OpenAI's form, `{"error": {"message", "type", "param", "code"}}`."""
    return JSONResponse({"error": error_fields(error)}, error.status, headers=error.headers)


def error_fields(error: RefusedError) -> dict[str, str | None]:
    """Returns the fields of OpenAI's error object."""
    other = "invalid_request_error" if error.status < 500 else "server_error"
    kind = TYPES.get(error.status, other)
    return {"message": error.text, "type": kind, "param": error.field, "code": error.code}


def too_many(limit: int) -> RefusedError:
    """As many requests are under way as the server takes."""
    text = f"{limit} requests are under way already; come back in 1 s"
    return RefusedError(429, text, headers={"Retry-After": "1"})


def not_ready(state: str, fault: str | None = None) -> RefusedError:
    """The server takes no request in this state.

    Args:
        state: see `engine_thread.ServiceState`.
        fault: name of the error that it failed with.
    """
    if state == "warming":
        text = "the model is warming up; come back in 5 s"
        return RefusedError(503, text, code="warming_up", headers={"Retry-After": "5"})
    if state == "draining":
        return stopping()
    text = f"the server failed ({fault}) and nothing was computed; send the request again soon"
    return RefusedError(503, text, code="failed", headers={"Retry-After": "2"})


def stopping() -> RefusedError:
    """The server is going down."""
    text = "the server is stopping; ask another one"
    return RefusedError(503, text, code="draining", headers={"Retry-After": "5"})


def too_long(prompt: int, new: int, limit: int) -> BadRequestError:
    """The prompt and the tokens asked for do not fit the model."""
    text = (
        f"the model takes {limit} tokens in all, and this is {prompt + new}: {prompt} of the "
        f"prompt and {new} new ones; send a shorter prompt or fewer pixels, or ask for fewer tokens"
    )
    return BadRequestError("messages", text, "context_length_exceeded")


def unknown_model(name: str, known: str) -> RefusedError:
    """Another model than the one that is served."""
    text = f"no model '{name[:200]}' here; this server has '{known}' (or leave `model` out)"
    return RefusedError(404, text, "model", "model_not_found")


def past_deadline(seconds: float) -> RefusedError:
    """The deadline passed, and the row was freed."""
    text = f"the deadline passed after {seconds:.1f} s; ask for fewer tokens, or give more time"
    return RefusedError(504, text, "deadline_ms", "deadline_exceeded", NO_RETRY)


def engine_failed(error: Exception | None) -> RefusedError:
    """Returns what a client is told whose request ended with an error.

    What the engine refuses on purpose is the request's fault; anything else is not, and is no
    more than named: messages of other libraries may tell of the machine.
    """
    if error is not None and is_out_of_memory(error):
        text = (
            "memory ran out in this request; send a shorter prompt, fewer pixels, or wait for a "
            "quieter moment"
        )
        return RefusedError(503, text, None, "out_of_memory", NO_RETRY)
    if isinstance(error, RefusedError | SoonerError):
        return refusal_of(error, "")
    logger.error("the engine failed on a request", exc_info=error)
    text = f"the engine failed on this request ({type(error).__name__}) and it was ended"
    return RefusedError(503, text, None, "engine_error", NO_RETRY)


def refusal_of(error: BaseException, name: str) -> RefusedError:
    """Returns the refusal that an exception of a handler stands for.

    A 500 is a fault of ours, and no documented answer: the log has the traceback.

    Args:
        name: the request's id.
    """
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ClientDisconnect):
        return RefusedError(499, "the client hung up")  # nobody reads this
    if isinstance(error, asyncio.CancelledError):  # by Uvicorn, behind the grace
        return stopping()
    if isinstance(error, FieldError):
        return BadRequestError(error.field, str(error))
    if isinstance(error, SoonerError):
        return BadRequestError(None, str(error))
    logger.error("%s failed", name, exc_info=error)
    text = f"a fault of the server ({type(error).__name__})"
    return RefusedError(500, text, None, "internal_error")


def _line(text: str) -> str:
    """Returns one line of valid Unicode, whatever a client made the text quote."""
    clean = " ".join(text.encode("utf-8", "replace").decode().split())
    return clean if len(clean) <= LONGEST else clean[:LONGEST] + "…"
