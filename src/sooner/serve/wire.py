"""The JSON of OpenVLA's `/act`, in each of the forms that its clients send.

A request is `{"image": ..., "instruction": "...", "unnorm_key": "..."}`, the last one optional. The
image is nested lists, a base64 text (PNG, JPEG, WebP or npy), or what the `json_numpy` package
writes, `{"__numpy__": base64, "dtype": "|u1", "shape": [h, w, 3]}`. The whole may be a JSON text of
its own under `encoded`. The answer has the form of the request: a list of numbers, or
`json_numpy`'s, or that as a text. Policies that say several actions at once answer with a list of
actions, as OpenVLA-OFT's do.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np

from ..errors import did_you_mean
from ..tasks.act.observation import (
    MAX_DIMS,
    FieldError,
    Observation,
    UnreadableError,
    brief,
    decode_picture,
    from_buffer,
)
from .refusal import RefusedError, of_field

Form = Literal["plain", "numpy", "encoded"]
FIELDS = ("image", "instruction", "unnorm_key", "deadline_ms", "details")
ARRAY = "__numpy__"
LONGEST_NAME = 64
"""Characters of an unknown field that are repeated to its sender."""


@dataclass(frozen=True)
class ActRequest:
    """A request as it was understood.

    Attributes:
        observation: checked.
        deadline_ms: that the body names.
        details: whether the answer is to tell how it came about.
        form: of the request, and so of the answer.
    """

    observation: Observation
    deadline_ms: float | None
    details: bool
    form: Form


def parse(body: bytes) -> ActRequest:
    """Read a request.

    Raises:
        RefusedError: 400 for what is no JSON object or holds a picture that can't be read, 422 with
            its name for a wrong field.
    """
    data = _object(body, "the body")
    is_encoded = "encoded" in data
    if is_encoded:
        data = _inner(data)
    for name in data:
        if name not in FIELDS:
            short = name[:LONGEST_NAME]
            raise RefusedError(
                422,
                f"unknown field '{short}'{did_you_mean(short, FIELDS)}; known: {', '.join(FIELDS)}",
                short,
            )
    for name in ("image", "instruction"):
        if data.get(name) is None:
            raise RefusedError(422, f"{name} is missing; send image and instruction", name)
    try:
        image = read_image(data["image"])
        observation = Observation(image, data["instruction"], data.get("unnorm_key"))
    except FieldError as error:
        raise of_field(error) from error
    is_array = isinstance(data["image"], Mapping)
    return ActRequest(
        observation,
        milliseconds(data.get("deadline_ms")),
        _flag(data.get("details", False)),
        "encoded" if is_encoded else "numpy" if is_array else "plain",
    )


def read_image(value: Any) -> np.ndarray:
    """Returns the picture of a request, uint8 `[height, width, 3]`.

    Raises:
        FieldError: it is none.
    """
    if isinstance(value, str):
        return decode_picture(_bytes(value.partition(",")[2] if value[:5] == "data:" else value))
    if isinstance(value, list):
        return _from_lists(value)
    if isinstance(value, dict) and isinstance(value.get(ARRAY), str):
        return from_buffer(_bytes(value[ARRAY]), value.get("dtype"), value.get("shape"))
    raise FieldError(
        "image",
        f"image is {_kind(value)}; send nested lists, base64 (PNG, JPEG, WebP, npy) or json_numpy",
    )


def milliseconds(raw: Any) -> float | None:
    """Returns a deadline, from a number or a header's text.

    Raises:
        RefusedError: something else.
    """
    if raw is None:
        return None
    try:
        value = math.nan if isinstance(raw, bool) else float(raw)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        text = f"deadline_ms is {brief(raw)}; it must be a number above 0"
        raise RefusedError(422, text, "deadline_ms")
    return value


def write(actions: np.ndarray, form: Form) -> Any:
    """Returns actions `[horizon, dims]` as the JSON value of an answer."""
    if form == "plain":
        return actions[0].tolist() if len(actions) == 1 else actions.tolist()
    arrays = [as_json_numpy(action) for action in actions]
    result = arrays[0] if len(arrays) == 1 else arrays
    return json.dumps(result) if form == "encoded" else result


def as_json_numpy(array: np.ndarray) -> dict[str, Any]:
    """Returns what the `json_numpy` package writes for an array."""
    data = np.ascontiguousarray(array)
    return {
        ARRAY: base64.b64encode(data.tobytes()).decode(),
        "dtype": data.dtype.str,
        "shape": list(data.shape),
    }


def _object(text: bytes | str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"{what} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise RefusedError(
            400, f"{what} is {_kind(value)}; send an object with image and instruction"
        )
    return value


def _no_number(name: str) -> NoReturn:
    """Python reads NaN and Infinity, which JSON does not have."""
    raise ValueError(f"it has {name}")


def _inner(value: Mapping[str, Any]) -> dict[str, Any]:
    if len(value) > 1 or not isinstance(value["encoded"], str):
        text = "encoded must be a JSON text and the only field"
        raise RefusedError(422, text, "encoded")
    return _object(value["encoded"], "encoded")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FieldError("image", f"image is no base64: {error}") from error


def _from_lists(value: list[Any]) -> np.ndarray:
    # As objects first: numpy would make room for the longest of any texts, at each place.
    result = np.array(value, dtype=object)
    kinds = set(map(type, result.ravel()))
    if result.ndim > MAX_DIMS:
        raise UnreadableError(
            "image", f"image has lists {result.ndim} deep or more; send [height][width][3]"
        )
    if list in kinds:
        raise FieldError("image", "image has rows of different length")
    if not kinds or not kinds <= {int, float}:
        raise FieldError("image", "image holds other things than numbers; send 0 to 255")
    try:
        array = result.astype(np.float64)
    except OverflowError as error:
        raise FieldError("image", "image holds a number beyond 255; send 0 to 255") from error
    is_wrong = ~((array >= 0) & (array <= 255) & (array == np.floor(array)))
    if is_wrong.any():
        worst = array.flat[int(is_wrong.argmax())]
        raise FieldError("image", f"image holds {worst:g}; it must hold whole numbers of 0 to 255")
    return array.astype(np.uint8)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        text = f"details is {brief(value)}; it must be true or false"
        raise RefusedError(422, text, "details")
    return value


def _kind(value: Any) -> str:
    names = {list: "a list", dict: "an object", str: "a text", bool: "a truth value"}
    return names.get(type(value), "null" if value is None else "a number")
