"""What surrounds a policy: observations, pictures, bins and paces."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sooner.errors import FieldError, SoonerError
from sooner.methods.controller import Quickest
from sooner.tasks.act.observation import Observation, decode_picture
from sooner.tasks.settings import parse_numbers

PICTURE = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)


def encoded(kind: str, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PICTURE).convert(mode).save(stream, kind)
    return stream.getvalue()


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def huge_png(width: int, height: int) -> bytes:
    """The first lines of a picture that claims to be large."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    checked = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    data = b"IDAT" + zlib.compress(b"")
    body = struct.pack(">I", len(data) - 4) + data + struct.pack(">I", zlib.crc32(data))
    return b"\x89PNG\r\n\x1a\n" + checked + body


@pytest.mark.parametrize(
    ("image", "error"),
    [
        ([[1]], "image is a list"),
        (PICTURE[..., 0], r"shape \[4, 5\]"),
        (PICTURE.transpose(2, 0, 1), r"shape \[3, 4, 5\]; it must be RGB, \[height, width, 3\]"),
        (PICTURE.astype(np.float32), "type 'float32'"),
        (PICTURE[:0], "0|must have pixels"),
        (np.broadcast_to(np.uint8(0), (10_000, 10_000, 3)), "100 megapixels; at most 25"),
    ],
)
def test_what_is_no_picture_is_refused_by_field(image: Any, error: str) -> None:
    with pytest.raises(FieldError, match=error) as raised:
        Observation(image, "reach")
    assert raised.value.field == "image"


@pytest.mark.parametrize(("kind", "mode"), [("JPEG", "RGB"), ("PNG", "RGBA"), ("PNG", "L")])
def test_other_pictures_become_rgb(kind: str, mode: str) -> None:
    read = decode_picture(encoded(kind, mode))
    assert (read.shape, read.dtype) == (PICTURE.shape, np.uint8)


def test_an_array_in_fortran_order_is_the_same_picture() -> None:
    np.testing.assert_array_equal(decode_picture(npy(np.asfortranarray(PICTURE))), PICTURE)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"hello", "no PNG, JPEG, WebP or npy"),
        (b"", "no PNG, JPEG, WebP or npy"),
        (encoded("PNG")[:45], "image is broken"),
        (npy(PICTURE)[:-9], "image is broken"),
        (npy(PICTURE.astype(np.int64)), "type 'int64'"),
        (npy(PICTURE)[:20], "image is broken"),
        (npy(np.array([{}], dtype=object)), "image is broken"),
        (huge_png(10_000, 10_000), "100 megapixels"),
        (huge_png(60_000, 60_000), "exceeds limit|megapixels"),
    ],
    ids=str.split("text nothing cut short-npy int64 header objects huge vast"),
)
def test_broken_pictures_are_refused(data: bytes, error: str) -> None:
    with pytest.raises(FieldError, match=error):
        decode_picture(data)


@pytest.mark.parametrize(("text", "bins"), [("9", (9,)), ("0", (0,)), ("1, 2,3", (1, 2, 3))])
def test_bins_as_people_write_them(text: str, bins: tuple[int, ...]) -> None:
    assert parse_numbers(text) == bins


@pytest.mark.parametrize("text", ["nine", "1.5", "", "5mm,3,0"])
def test_other_bins_are_refused(text: str) -> None:
    with pytest.raises(SoonerError, match=f"'{text}' is no list of numbers; write it as 9 or"):
        parse_numbers(text)


def test_a_choice_tries_each_then_keeps_the_quickest_and_asks_again() -> None:
    pace = Quickest(("plain", "strict"), trials=3)
    seconds = {"plain": 1.0, "strict": 0.5}
    picked = []
    for _ in range(150):
        picked.append(pace.pick(1))
        pace.add(picked[-1], 1, seconds[picked[-1]])
    assert picked[:6].count("plain") == 3
    assert 0 < picked[6:].count("plain") <= 3
