"""Pictures from bytes: PNG, JPEG and the like, or npy; sizes are checked before pixels are read."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from .observation import FieldError, check_image, check_size

NPY = b"\x93NUMPY"


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

    Raises:
        FieldError: type or shape are no picture's, or the bytes do not fill the shape.
    """
    try:
        kind, sizes = np.dtype(dtype), tuple(int(size) for size in shape)
    except (TypeError, ValueError) as error:
        raise FieldError(
            "image", f"image has dtype {dtype!r} and shape {shape!r}, which numpy does not know"
        ) from error
    # A view of one byte has the shape and the type, whatever size was claimed.
    if kind.hasobject or min(sizes, default=0) < 0:
        raise FieldError("image", f"image has dtype {dtype!r} and shape {shape!r}; send uint8")
    check_image(np.broadcast_to(np.zeros((), kind), sizes))
    if len(data) != int(np.prod(sizes)):
        raise FieldError(
            "image", f"image has {len(data)} bytes; shape {list(sizes)} of uint8 has "
            f"{int(np.prod(sizes))}"
        )  # fmt: skip
    return np.frombuffer(data, np.uint8).reshape(sizes)


def _from_npy(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(stream)
        if version > (2, 0):
            raise ValueError(f"version {version}")
        read = np.lib.format
        header = read.read_array_header_1_0 if version == (1, 0) else read.read_array_header_2_0
        shape, is_fortran, dtype = header(stream)
    except ValueError as error:
        raise FieldError("image", f"image is no npy file that can be read: {error}") from error
    if is_fortran:
        raise FieldError("image", "image is an npy file in Fortran order; save it in C order")
    return from_buffer(stream.read(), dtype, shape)


def _from_encoded(data: bytes) -> np.ndarray:
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(data))
        check_size(*opened.size)
        return np.array(opened.convert("RGB"))
    except UnidentifiedImageError:
        raise FieldError(
            "image", f"image of {len(data)} bytes is no PNG, JPEG or npy; send one of them"
        ) from None
    except Image.DecompressionBombError as error:
        raise FieldError("image", f"image has too many pixels: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, FieldError):
            raise
        raise FieldError("image", f"image is broken: {error}; send it again") from error
