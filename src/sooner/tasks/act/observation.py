"""A robot's observation (picture, instruction, data set), validated; pictures from bytes."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...checks import check_picture_size, check_pixels
from ...errors import FieldError, reason_of

NPY = b"\x93NUMPY"

FORMATS = ("PNG", "JPEG", "WEBP")
"""What Pillow may try. It knows forty others, and hands some of them (EPS) to another program."""

LONGEST = 2_000
"""Characters of an instruction."""

LONGEST_KEY = 200
"""Characters of a data set's name."""


def read_picture(path: Path) -> np.ndarray:
    """Returns the picture in a file, RGB, uint8 `[height, width, 3]`.

    Raises:
        FieldError: no such file, or no picture in it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FieldError("image", f"image '{path}' can't be read: {reason_of(error)}") from error
    return decode_picture(data)


def decode_picture(data: bytes) -> np.ndarray:
    """Returns RGB, uint8 `[height, width, 3]`, from an encoded picture or a `.npy` file.

    Raises:
        FieldError: neither, a broken one, or one of too many pixels, which are not decoded.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        if data.startswith(NPY):
            image = np.load(io.BytesIO(data), allow_pickle=False)
            check_pixels(str(image.dtype), list(image.shape))
            return np.ascontiguousarray(image)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            picture = Image.open(io.BytesIO(data), formats=FORMATS)
        check_picture_size(*picture.size)
        return np.array(picture.convert("RGB"))
    except FieldError:
        raise
    except UnidentifiedImageError:
        raise FieldError(
            "image", f"image of {len(data)} bytes is no PNG, JPEG, WebP or npy; send one of them"
        ) from None
    except Exception as error:
        # Readers meet broken files with errors of many kinds (struct.error, EOFError, KeyError).
        raise FieldError("image", f"image is broken: {reason_of(error)}") from error


@dataclass(frozen=True, eq=False)
class Observation:
    """What one robot sees and has to do.

    Args:
        image: RGB, uint8 `[height, width, 3]`.
        instruction: what the robot is to do.
        unnorm_key: data set whose statistics give physical units; a policy with one needs none.

    Raises:
        FieldError: a wrong shape, type or size; says which field and how it should be.
    """

    image: np.ndarray
    instruction: str
    unnorm_key: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.image, np.ndarray):
            kind = type(self.image).__name__
            raise FieldError("image", f"image is a {kind}; it must be a picture")
        check_pixels(str(self.image.dtype), list(self.image.shape))
        if not self.instruction.strip():
            raise FieldError("instruction", "instruction is empty; say what the robot is to do")
        for field, longest in (("instruction", LONGEST), ("unnorm_key", LONGEST_KEY)):
            text = getattr(self, field) or ""
            if len(text) > longest:
                raise FieldError(
                    field, f"{field} has {len(text)} characters; at most {longest} are read"
                )
