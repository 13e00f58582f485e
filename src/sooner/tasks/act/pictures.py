"""Pictures from bytes: PNG, JPEG, WebP or npy; sizes are checked before pixels are read."""

from __future__ import annotations

import io
import math
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .observation import FieldError, UnreadableError, brief, check_image, check_size

NPY = b"\x93NUMPY"
FORMATS = ("PNG", "JPEG", "WEBP")
"""What Pillow may try. It knows forty others, and hands some of them (EPS) to another program."""
DTYPE = re.compile(r"[<>=|]?[a-zA-Z]\w{0,12}")
MOST_DIMS = 8
"""Of a shape that is read at all, so that the message can tell what is wrong with it."""


def read_picture(path: Path) -> np.ndarray:
    """The picture in a file, RGB, uint8 `[height, width, 3]`.

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
    """RGB, uint8 `[height, width, 3]`, from an encoded picture or a `.npy` file.

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
    kind, sizes = _kind(dtype), _sizes(shape)
    if kind.kind not in "biufc" or min(sizes, default=0) < 0:
        raise UnreadableError(
            "image",
            f"image has dtype {brief(str(kind))} and shape {brief(list(sizes))}; send uint8",
        )
    if math.prod(max(size, 1) for size in sizes) * kind.itemsize > sys.maxsize:
        raise UnreadableError("image", f"image has shape {brief(shape)}, which nothing can hold")
    # A view of one element has the shape and the type, whatever size was claimed.
    check_image(np.broadcast_to(np.zeros((), kind), sizes))
    if len(data) != math.prod(sizes):
        raise FieldError(
            "image", f"image has {len(data)} bytes; shape {list(sizes)} of uint8 has "
            f"{math.prod(sizes)}"
        )  # fmt: skip
    return np.frombuffer(data, np.uint8).reshape(sizes)


def _kind(dtype: Any) -> np.dtype:
    if isinstance(dtype, np.dtype):
        return dtype
    # Only names of plain numbers: numpy also reads structures, and of any size.
    if not (isinstance(dtype, str) and DTYPE.fullmatch(dtype)):
        raise UnreadableError(
            "image", f"image has dtype {brief(dtype)}, which numpy does not know; send uint8"
        )
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise UnreadableError(
            "image", f"image has dtype {brief(dtype)}, which numpy does not know; send uint8"
        ) from error


def _sizes(shape: Any) -> tuple[int, ...]:
    known = isinstance(shape, list | tuple) and len(shape) <= MOST_DIMS
    if not known or not all(type(size) is int for size in shape):
        raise UnreadableError(
            "image",
            f"image has shape {brief(shape)}, which numpy does not know; send three whole numbers, "
            "[height, width, 3]",
        )
    return tuple(shape)


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
    """What a library said, on one line."""
    return str(error).partition("\n")[0] or type(error).__name__
