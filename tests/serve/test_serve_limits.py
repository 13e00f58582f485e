"""What a server refuses before computing: bytes, connections, pictures, clients without a token."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import resource
import socket
import struct
import time
from typing import Any

import httpx
import pytest
from PIL import Image

from serve.robots import (
    WAIT,
    SlowPolicy,
    body_of,
    json_numpy,
    request,
    running,
    served,
)
from sooner.errors import FieldError
from sooner.serve.act import ActRequest
from sooner.serve.http import parse
from sooner.serve.refusal import RefusedError, refusal_of
from tiny_policy import image

PICTURE = image(1, 6, 5)


def encoded(kind: str, **options: Any) -> str:
    stream = io.BytesIO()
    Image.fromarray(PICTURE).save(stream, kind, **options)
    return base64.b64encode(stream.getvalue()).decode()


def refusal(**fields: Any) -> RefusedError:
    """What a request with these fields is refused with."""
    with pytest.raises((RefusedError, FieldError)) as caught:
        _ = parse(ActRequest, body_of(request(**fields))).observation
    error = refusal_of(caught.value, "name")
    assert error.status == 400
    assert "\n" not in error.text
    assert len(error.text) < 450
    return error


SHAPES = (
    [1e18, 1e18, 3], [10**18, 10**18, 3], [1] * 100, [float("inf"), 4, 3], [float("nan")],
    ["4", 5, 3], [-4, -5, 3],
    [4.0, 5.0, 3.0], [True, True, 3], [[4], 5, 3], "abc", None, {}, 60, [2**62, 2**62, 0, 2**62],
)  # fmt: skip


VALUES: list[dict[str, Any]] = [
    *({"image": {**json_numpy(PICTURE), "shape": shape}} for shape in SHAPES),
    {"deadline_ms": float("inf")},
    {"image": [[[1, 2, float("-inf")]]]},
    {"image": json.loads("[" * 100 + "1" + "]" * 100)},
    {"deadline_ms": 10**400},
    {"unnorm_key": "k" * 1_000_000},
    {"instruction": "\ud800 half"},
    {"unnorm_key": "\ud800"},
    {"instruction": json.loads("[" * 900 + "]" * 900)},
    {"image": {"__numpy__": "", "dtype": "S999999999999", "shape": [4, 5, 3]}},
    {"image": {"__numpy__": "", "dtype": "(9999,9999)u1", "shape": [4, 5, 3]}},
    {"image": {"__numpy__": "", "dtype": {"names": ["a"]}, "shape": [4, 5, 3]}},
    {"image": ["a" * 4_000_000, *["b"] * 400_000]},  # 6 TB as an array of texts
]


@pytest.mark.parametrize("fields", VALUES)
def test_values_beyond_reason_are_refused_with_a_line(fields: dict[str, Any]) -> None:
    refusal(**fields)


@pytest.mark.parametrize("kind", ["EPS", "BMP", "GIF", "TIFF", "PPM", "TGA", "ICO", "PDF"])
def test_no_other_format_is_even_opened(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(kind)

    def no(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a decoder was started")

    monkeypatch.setattr("subprocess.check_call", no)  # Ghostscript
    monkeypatch.setattr(Image.Image, "convert", no)
    assert "no PNG, JPEG, WebP or npy" in refusal(image=data).text


def vast(kind: str) -> str:
    """A small file that says it is 16,000 x 16,000 pixels."""
    if kind == "WEBP":
        bits = (16_000 - 1) | (16_000 - 1) << 14
        lossless = b"\x2f" + struct.pack("<I", bits) + bytes(64)
        chunk = b"VP8L" + struct.pack("<I", len(lossless)) + lossless
        raw = b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk
        return base64.b64encode(raw).decode()
    stream = io.BytesIO()
    Image.new("L", (16_000, 16_000)).save(stream, kind)
    return base64.b64encode(stream.getvalue()).decode()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_pixels_are_limited_before_they_are_decoded(kind: str) -> None:
    data = vast(kind)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal(image=data)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB
    assert grown < 200_000  # decoded it has 250 to 1,000 MB


def test_a_declared_length_is_refused_before_anything_is_read() -> None:
    read: list[int] = []

    async def pieces() -> Any:
        for number in range(100):
            read.append(number)
            yield b"x" * 1000

    async def scenario() -> httpx.Response:
        async with running(SlowPolicy(), max_body=1000) as client:
            headers = {"Content-Length": "100000"}  # more than is read of a refused one
            return await client.post("/act", content=pieces(), headers=headers)

    assert asyncio.run(scenario()).status_code == 413
    assert len(read) <= 1  # httpx begins before it is asked


def test_a_body_in_chunks_is_limited_as_it_comes() -> None:
    async def chunks() -> Any:
        for _ in range(55):
            yield b" " * 1000

    async def scenario() -> httpx.Response:
        async with running(SlowPolicy(), max_body=50_000) as client:
            return await client.post("/act", content=chunks())

    assert asyncio.run(scenario()).status_code == 413


def test_connections_are_limited() -> None:
    with served(SlowPolicy(), max_connections=4) as address:
        host, port = address.removeprefix("http://").split(":")
        idle = [socket.create_connection((host, int(port)), timeout=WAIT) for _ in range(4)]
        deadline = time.monotonic() + WAIT
        while httpx.get(f"{address}/health").status_code == 200:
            assert time.monotonic() < deadline
        assert httpx.get(f"{address}/health").status_code == 503
        for connection in idle:
            connection.close()
        while httpx.get(f"{address}/health").status_code != 200:
            assert time.monotonic() < deadline
