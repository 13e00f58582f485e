"""A robot's observation (picture, instruction, data set), validated; pictures from bytes."""

from __future__ import annotations

import io
import math
import re
import reprlib
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import SoonerError

NPY = b"\x93NUMPY"

FORMATS = ("PNG", "JPEG", "WEBP")

"""What Pillow may try. It knows forty others, and hands some of them (EPS) to another program."""

DTYPE = re.compile(r"[<>=|]?[a-zA-Z]\w{0,12}")

MAX_DIMS = 8

"""The largest shape that is read at all, so that the message can tell what is wrong with it."""


def read_picture(path: Path) -> np.ndarray:
    """Returns the picture in a file, RGB, uint8 `[height, width, 3]`.

    Raises:
        FieldError: no such file, or no picture in it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise FieldError("image", f"image '{path}' can't be read: {reason}") from error
    return decode_picture(data)


def decode_picture(data: bytes) -> np.ndarray:
    """Returns RGB, uint8 `[height, width, 3]`, from an encoded picture or a `.npy` file.

    Raises:
        FieldError: neither, a broken one, or one of too many pixels, which are not decoded.
    """
    return _from_npy(data) if data.startswith(NPY) else _from_encoded(data)


def from_buffer(data: bytes, dtype: Any, shape: Any) -> np.ndarray:
    """An array from its raw bytes, checked as a picture before anything is made of it.

    Args:
        dtype: a numpy dtype, or its name as `json_numpy` writes it.
        shape: three whole numbers.

    Raises:
        UnreadableError: type or shape are not those of an array of numbers.
        FieldError: they are no picture's, or the bytes do not fill the shape.
    """
    # Only names of plain numbers: numpy also reads structures, and of any size.
    kind: np.dtype | None = None
    if isinstance(dtype, np.dtype) or (isinstance(dtype, str) and DTYPE.fullmatch(dtype)):
        with suppress(TypeError, ValueError):
            kind = np.dtype(dtype)
    if kind is None:
        text = f"image has dtype {brief(dtype)}, which numpy does not know; send uint8"
        raise UnreadableError("image", text)
    is_shape = isinstance(shape, list | tuple) and len(shape) <= MAX_DIMS
    if not is_shape or not all(type(size) is int for size in shape):
        raise UnreadableError(
            "image",
            f"image has shape {brief(shape)}, which numpy does not know; send three whole numbers, "
            "[height, width, 3]",
        )
    if kind.kind not in "biufc" or min(shape, default=0) < 0:
        text = f"image has dtype {brief(str(kind))} and shape {brief(list(shape))}; send uint8"
        raise UnreadableError("image", text)
    if math.prod(max(size, 1) for size in shape) * kind.itemsize > sys.maxsize:
        raise UnreadableError("image", f"image has shape {brief(shape)}, which nothing can hold")
    # A view of one element has the shape and the type, whatever size was claimed.
    check_image(np.broadcast_to(np.zeros((), kind), tuple(shape)))
    if len(data) != (size := math.prod(shape)):
        text = f"image has {len(data)} bytes; shape {list(shape)} of uint8 has {size}"
        raise FieldError("image", text)
    return np.frombuffer(data, np.uint8).reshape(shape)


def _from_npy(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version > (2, 0):
            raise ValueError(f"version {version}")
        read = np.lib.format
        header = read.read_array_header_1_0 if version == (1, 0) else read.read_array_header_2_0
        shape, is_fortran, dtype = header(stream)
    except Exception as error:
        # The header is a Python literal: its tokenizer, its parser and numpy raise what they like.
        raise UnreadableError(
            "image", f"image is no npy file that can be read: {_reason(error)}"
        ) from error
    if is_fortran:
        raise FieldError("image", "image is an npy file in Fortran order; save it in C order")
    return from_buffer(stream.read(), dtype, shape)


def _from_encoded(data: bytes) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(data), formats=FORMATS)
        check_size(*opened.size)
        return np.array(opened.convert("RGB"))
    except FieldError:
        raise
    except UnidentifiedImageError:
        raise FieldError(
            "image", f"image of {len(data)} bytes is no PNG, JPEG, WebP or npy; send one of them"
        ) from None
    except Image.DecompressionBombError as error:
        raise FieldError("image", f"image has too many pixels: {error}") from error
    except Exception as error:
        # Decoders meet broken files with errors of many kinds (struct.error, EOFError, KeyError).
        raise FieldError("image", f"image is broken: {_reason(error)}; send it again") from error


def _reason(error: Exception) -> str:
    """Returns what a library said, on one line."""
    return str(error).partition("\n")[0] or type(error).__name__


LONGEST = 2_000

"""Characters of an instruction."""

LONGEST_KEY = 200

"""Characters of a data set's name."""

MAX_PIXELS = 25_000_000

"""The largest side of a picture; towers look at a few hundred pixels on a side."""


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
    """What one robot sees and has to do.

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
        text, key = self.instruction, self.unnorm_key
        if not isinstance(text, str):
            kind = type(text).__name__
            raise FieldError("instruction", f"instruction is a {kind}; it must be a text")
        if not text.strip():
            raise FieldError("instruction", "instruction is empty; say what the robot is to do")
        if len(text) > LONGEST:
            raise FieldError(
                "instruction", f"instruction has {len(text)} characters; at most {LONGEST} are read"
            )
        if key is not None and not (isinstance(key, str) and len(key) <= LONGEST_KEY):
            raise FieldError("unnorm_key", f"unnorm_key is {brief(key)}; give a data set's name")
        for field, value in (("instruction", text), ("unnorm_key", key or "")):
            try:
                value.encode()  # JSON can hold lone surrogates, which UTF-8 can't
            except UnicodeEncodeError as error:
                raise FieldError(
                    field, f"{field} is no valid Unicode at character {error.start}; send text"
                ) from error


def brief(value: Any) -> str:
    """Returns what was sent, as a message may quote it: of any type, size and depth, on a short
    line.
    """
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
    if width * height > MAX_PIXELS:
        raise FieldError(
            "image",
            f"image of {width} x {height} has {width * height / 1e6:.0f} megapixels; at most "
            f"{MAX_PIXELS // 1_000_000} are read, send it smaller",
        )
