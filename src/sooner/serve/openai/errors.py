"""Refusals in the form of OpenAI's API: a status, and `{"error": {...}}`.

400: a field is wrong (`param` names it) or the prompt is too long. 401: no token. 403: a Host or an
Origin that is not this machine's. 404, 405: no such path or model, or another method. 408, 413: the
body did not come, or is too large. 429: full, `Retry-After` says when to come back. 503: warming
up, draining or failed. 504: the deadline passed, and the row is free again.
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from ...errors import SoonerError, is_out_of_memory
from ..refusal import RefusedError, hung_up

logger = logging.getLogger("sooner.serve")

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
NO_RETRY = {"x-should-retry": "false"}
"""OpenAI's clients send 5xx again by themselves, unless they are told that it is of no use."""


class BadRequestError(RefusedError):
    """400: a field is missing or wrong.

    Args:
        field: its path in the body, such as `messages[0].content[1].image_url.url`.
        text: what is wrong, and the way out.
    """

    def __init__(self, field: str | None, text: str, code: str | None = None) -> None:
        super().__init__(400, text, field, code)


def too_long(prompt: int, new: int, limit: int, field: str = "messages") -> BadRequestError:
    """The prompt and the tokens asked for do not fit the model."""
    text = (
        f"the model takes {limit} tokens in all, and this is {prompt + new}: {prompt} of the "
        "prompt "
        f"and {new} new ones; send a shorter prompt or fewer pixels, or ask for fewer tokens"
    )
    if prompt >= limit:
        text = (
            f"the prompt has {prompt} tokens, and the model takes {limit} with at least one new "
            "one; send a shorter prompt or fewer pixels"
        )
    return BadRequestError(field, text, "context_length_exceeded")


def unknown_model(name: str, known: str) -> RefusedError:
    """Returns another model than the one that is served."""
    return RefusedError(
        404,
        f"no model '{name[:200]}' here; this server has '{known}' (or leave `model` out)",
        "model",
        "model_not_found",
    )


def past_deadline(seconds: float) -> RefusedError:
    """The deadline passed, and the row was freed."""
    return RefusedError(
        504,
        f"the deadline passed after {seconds:.1f} s; ask for fewer tokens, or give more time",
        "deadline_ms",
        "deadline_exceeded",
        NO_RETRY,
    )


def engine_failed(error: Exception | None) -> RefusedError:
    """Returns what a client is told whose job ended with an error.

    What the engine refuses on purpose is the request's fault; anything else is not, and is no
    more than named: messages of other libraries may tell of the machine.
    """
    if isinstance(error, RefusedError):
        return error
    if error is not None and is_out_of_memory(error):
        return RefusedError(
            503,
            "memory ran out in this request; send a shorter prompt, fewer pixels, or wait for a "
            "quieter moment",
            None,
            "out_of_memory",
            NO_RETRY,
        )
    if isinstance(error, SoonerError):
        return BadRequestError(None, str(error))
    logger.error("the engine failed on a request", exc_info=error)
    return RefusedError(
        503,
        f"the engine failed on this request ({type(error).__name__}) and it was ended",
        None,
        "engine_error",
        NO_RETRY,
    )


def known(error: Exception, name: str) -> RefusedError:
    """Returns the refusal that an exception of a handler stands for.

    A 500 is a fault of ours, and no documented answer: the log has the traceback.

    Args:
        name: the request's id.
    """
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, ClientDisconnect):
        return hung_up()
    if isinstance(error, SoonerError):
        return BadRequestError(None, str(error))
    logger.error("%s failed", name, exc_info=error)
    return RefusedError(
        500, f"a fault of the server ({type(error).__name__})", None, "internal_error"
    )


def body(error: RefusedError) -> dict[str, Any]:
    """Returns `{"error": {"message", "type", "param", "code"}}`."""
    return {
        "error": {
            "message": error.text,
            "type": TYPES.get(error.status, "server_error"),
            "param": error.field,
            "code": error.code,
        }
    }


def refused(error: RefusedError) -> Response:
    """Returns the answer to a request that gets nothing else."""
    return JSONResponse(body(error), error.status, headers=error.headers)
