"""Bodies to requests: JSON, types and limits, each error with the path of its field."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from ...tasks.act.observation import brief
from ..refusal import BadRequestError
from .protocol import GenerationRequest

Request = TypeVar("Request", bound=GenerationRequest)
TYPES = {
    "messages": 'a list of objects such as {"role": "user", "content": "hello"}',
    "image_url": 'an object such as {"url": "data:image/png;base64,..."}',
    "video_url": 'an object such as {"url": "data:video/mp4;base64,..."}',
    "file": 'an object such as {"file_data": "data:application/pdf;base64,..."}',
    "stop": "a string or a list of strings",
    "content": "a string or a list of parts",
    "prompt": "a string, a list of strings, or token ids",
    "tool_choice": '"none", "auto", "required", or the name of a function as an object',
}
"""What fields take, where pydantic would name a type, or one member of a union alone."""
UNTAGGED = ("union_tag_invalid", "union_tag_not_found")
"""pydantic's errors of an object whose `type` is none that it knows, or missing."""
SMALL = 8 << 20
"""Bytes of a body that is read once more to tell the path of a wrong field, not only its first
name; in a larger one that would hold up everybody else's tokens."""


def parse(kind: type[Request], body: bytes) -> Request:
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
    request.check()
    return request


def deadline_seconds(header: str | None, requested: float | None, default: float | None) -> float:
    """Returns seconds that a request may take; infinite if nobody says. The header comes first.

    Raises:
        BadRequestError: the header is no number above 0.
    """
    if header is not None:
        try:
            requested = float(header)
        except ValueError:
            requested = math.nan
        if not math.isfinite(requested) or requested <= 0:
            raise BadRequestError(
                "deadline_ms", f"x-deadline-ms is {brief(header)}; it must be a number above 0"
            )
    if requested is not None:
        return requested / 1e3
    return math.inf if default is None else default


def path_of(location: tuple[int | str, ...], value: Any) -> str:
    """Returns a field's path in the body, such as `messages[0].content`.

    pydantic names the members of unions in between; what is no key of the body is left out.
    """
    path = ""
    for index, key in enumerate(location):
        is_last = index == len(location) - 1
        if isinstance(key, int):
            path += f"[{key}]"
            value = value[key] if isinstance(value, list) and key < len(value) else None
        elif isinstance(value, Mapping) and (key in value or is_last):
            path += f".{key}" if path else key
            value = value.get(key)
    return path


def _refusal(error: ValidationError, body: bytes) -> BadRequestError:
    detail = error.errors(include_url=False)[0]
    if detail["type"] == "json_invalid":
        text = detail["msg"].partition(": ")[2] if body.strip() else "it is empty"
        return BadRequestError(None, f"the body is no JSON: {text}")
    if not detail["loc"]:
        return BadRequestError(None, f"the body is {brief(detail['input'])}; send an object")
    is_small = len(body) <= SMALL
    path = path_of(detail["loc"], json.loads(body)) if is_small else str(detail["loc"][0])
    name = path.rpartition(".")[2]
    if detail["type"] == "missing":
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
