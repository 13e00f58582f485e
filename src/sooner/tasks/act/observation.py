"""What a robot sees and is told, checked field by field."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import SoonerError

LONGEST = 2_000
"""Characters of an instruction."""
LONGEST_KEY = 200
"""Characters of a data set's name."""
MOST_PIXELS = 25_000_000
"""Of a picture; towers look at a few hundred on a side."""


class FieldError(SoonerError):
    """A field of an observation is missing or wrong.

    Attributes:
        field: its name, `image`, `instruction` or `unnorm_key`.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class UnreadableError(FieldError):
    """A field can't be read at all: bytes, a header or a shape that are no picture's."""


@dataclass(frozen=True, eq=False)
class Observation:
    """One robot's view and task.

    Args:
        image: RGB, uint8 `[height, width, 3]`.
        instruction: what the robot is to do.
        unnorm_key: data set whose statistics turn the action into physical units; a policy with
            one data set needs none.

    Raises:
        FieldError: a wrong shape, type or size; says which field and how it should be.
    """

    image: np.ndarray
    instruction: str
    unnorm_key: str | None = None

    def __post_init__(self) -> None:
        check_image(self.image)
        check_instruction(self.instruction)
        key = self.unnorm_key
        if key is None:
            return
        if not (isinstance(key, str) and len(key) <= LONGEST_KEY):
            raise FieldError("unnorm_key", f"unnorm_key is {brief(key)}; give a data set's name")
        _check_text("unnorm_key", key)


def brief(value: Any) -> str:
    """What was sent, as a message may quote it: of any type, size and depth, on a short line."""
    return reprlib.repr(value)


def check_image(image: Any) -> None:
    """Require uint8 `[height, width, 3]`.

    Raises:
        FieldError: something else, or too large.
    """
    if not isinstance(image, np.ndarray):
        raise FieldError("image", f"image is a {type(image).__name__}; it must be a picture")
    shape = list(image.shape)
    if image.ndim != 3 or image.shape[2] != 3:
        hint = ", channels last" if image.ndim == 3 and image.shape[0] == 3 else ""
        raise FieldError(
            "image", f"image has shape {shape}; it must be RGB, [height, width, 3]{hint}"
        )
    if image.dtype != np.uint8:
        raise FieldError("image", f"image is of type {image.dtype}; it must be uint8, 0 to 255")
    check_size(image.shape[1], image.shape[0])


def check_size(width: int, height: int) -> None:
    """Require a picture that is neither empty nor huge.

    Raises:
        FieldError: it is.
    """
    if min(width, height) < 1:
        raise FieldError("image", f"image is {width} x {height}; it must have pixels")
    if width * height > MOST_PIXELS:
        raise FieldError(
            "image",
            f"image of {width} x {height} has {width * height / 1e6:.0f} megapixels; at most "
            f"{MOST_PIXELS // 1_000_000} are read, send it smaller",
        )


def check_instruction(instruction: Any) -> None:
    """Require a text that says something.

    Raises:
        FieldError: it does not, or is too long.
    """
    if not isinstance(instruction, str):
        kind = type(instruction).__name__
        raise FieldError("instruction", f"instruction is a {kind}; it must be a text")
    if not instruction.strip():
        raise FieldError("instruction", "instruction is empty; say what the robot is to do")
    if len(instruction) > LONGEST:
        raise FieldError(
            "instruction",
            f"instruction has {len(instruction)} characters; at most {LONGEST} are read",
        )
    _check_text("instruction", instruction)


def _check_text(field: str, text: str) -> None:
    """JSON can spell halves of surrogate pairs, which no tokenizer and no answer can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FieldError(
            field, f"{field} is no valid Unicode at character {error.start}; send text"
        ) from error
