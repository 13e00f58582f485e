"""Bad requests by the thousand: every one is refused with its status and a line.

hypothesis writes bodies that are nearly right: 500 by default, 10,000 in the test that is marked
`soak`. What is hardly HTTP goes to a server on a socket.
"""

from __future__ import annotations

import base64
import errno
import io
import json
import logging
import struct
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as some
from PIL import Image

from serve.robots import body_of, json_numpy, npy, png, post, request, served
from sooner.errors import FieldError
from sooner.serve.act import ActRequest
from sooner.serve.http import parse
from sooner.serve.refusal import RefusedError, refusal_of, refused
from tiny_policy import image, policy

pytestmark = pytest.mark.slow

SOON = 30
"""Seconds in which each request is answered; the tiny policy takes milliseconds."""
PICTURE = image(3, 5, 4)

numbers = some.one_of(
    some.integers(-5, 300), some.integers(), some.floats(),
    some.sampled_from([1e18, 10**18, 2**31, 2**62, 2**63, 2**64, 10**400, float("inf"), -0.0]),
)  # fmt: skip
texts = some.one_of(
    some.text(max_size=30), some.text(some.characters(categories=["Cs"]), min_size=1, max_size=3)
)
values = some.recursive(
    some.one_of(some.none(), some.booleans(), numbers, texts),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
shapes = some.one_of(
    some.lists(numbers, max_size=5), values, some.integers(0, 100).map(lambda dims: [1] * dims)
)
dtypes = some.one_of(
    some.sampled_from(
        ["|u1", "<f8", "O", "V9", "S9999999999", "U99", "(9,9)u1", "u1,u1", "M8[s]", "|b1", "c16"]
    ),
    values,
)
deep = some.integers(1, 5000).map(lambda depth: "[" * depth + "1" + "]" * depth)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _npy(header: str, data: bytes, version: int) -> str:
    raw = header.encode("utf-8", "replace")
    size = struct.pack("<H", len(raw)) if version == 1 else struct.pack("<I", len(raw))
    return b64(b"\x93NUMPY" + bytes([version, 0]) + size + raw + data)


def _damaged(data: bytes, where: int, what: bytes, keep: int) -> str:
    at = where % max(len(data), 1)
    return b64((data[:at] + what + data[at + len(what) :])[: keep % (len(data) + 1) or None])


def _file(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(PICTURE).save(stream, kind)
    return stream.getvalue()


FILES = [_file(kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "EPS", "TIFF", "BMP")]
FILES.append(base64.b64decode(npy(PICTURE)))
headers = some.one_of(
    some.text(max_size=60),
    some.builds(
        "{{'descr': {!r}, 'fortran_order': {!r}, 'shape': {!r}, }}".format,
        dtypes, values, shapes.map(lambda report: tuple(report) if isinstance(report, list) else
    report), ),
    some.builds(lambda mark, count: mark * count, some.sampled_from("([{-9\n"), some.just(4000)),
)  # fmt: skip
images = some.one_of(
    values,
    some.builds(_npy, headers, some.binary(max_size=60), some.sampled_from([1, 2, 3])),
    some.builds(
        _damaged, some.sampled_from(FILES), some.integers(0, 5000), some.binary(max_size=12),
        some.integers(0, 5000),
    ),
    some.builds(
        lambda data, dtype, shape: {"__numpy__": data, "dtype": dtype, "shape": shape},
        some.one_of(some.just(json_numpy(PICTURE)["__numpy__"]), texts), dtypes, shapes,
    ),
    some.just(png(PICTURE)),
)  # fmt: skip
objects = some.fixed_dictionaries(
    {},
    optional={
        "image": images,
        "instruction": some.one_of(values, some.just("reach"), some.just("x" * 3000)),
        "unnorm_key": values,
        "deadline_ms": values,
        "encoded": some.one_of(values, values.map(json.dumps)),
        "more": values,
    },
)
damaged = some.builds(
    lambda report, at, what: (lambda raw: raw[: at % len(raw)] + what + raw[at % len(raw) :])(
        json.dumps(report).encode()
    ),
    objects, some.integers(0, 10_000), some.binary(min_size=1, max_size=9),
)  # fmt: skip
bodies = some.one_of(
    objects.map(lambda report: json.dumps(report).encode()),
    objects.map(lambda report: json.dumps({**request(), **report}).encode()),
    damaged,
    deep.map(str.encode),
    some.binary(max_size=200),
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server of a tiny real policy; it lives through all of this."""
    with served(policy(horizon=1), max_body=1 << 20) as where:
        yield where


def fuzz(count: int, number: int = 0) -> Counter[int]:
    """Returns how often `read` refused `count` bodies with each status; 200 is a request."""
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=count, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @seed(number)
    @given(bodies)
    def read(body: bytes) -> None:
        try:
            _ = parse(ActRequest, body).observation
        except (RefusedError, FieldError) as error:
            refusal = refusal_of(error, "name")
            statuses[refusal.status] += 1
            detail = json.loads(refused(refusal).body)["error"]["message"]
            assert detail
            assert "\n" not in detail
            assert len(detail) < 450
        else:
            statuses[200] += 1

    read()
    assert set(statuses) <= {200, 400}
    return statuses


def test_bad_requests_are_refused_with_a_line() -> None:
    assert fuzz(500)[400] > 40


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 3))
def test_thousands_of_bad_requests(number: int) -> None:
    assert fuzz(5000, number)[200] < 2500


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /act HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /act HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /act HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /act HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /act HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        b"POST /act HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
        b"POST /act HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=str.split("version length vast two chunk upgrade expect heads tls"),
)
def test_what_is_hardly_http_is_answered_or_cut(
    address: str, raw: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    import socket

    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=SOON) as connection:
        answer = b""
        try:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
        except OSError as error:  # cut while we wrote; an answer may lie there none the less
            if error.errno not in (errno.ENOTCONN, errno.EPIPE, errno.ECONNRESET):
                raise
        try:
            while piece := connection.recv(1 << 16):
                answer += piece
        except ConnectionResetError:
            pass
    if answer.startswith(b"HTTP/1.1 100 "):
        answer = answer.partition(b"\r\n\r\n")[2]
    if answer:
        assert int(answer.split(b" ")[1]) in {400, 403, 404, 405, 413, 431}
    assert httpx.get(f"{address}/health").json()["status"] == "ok"
    assert post(address, body_of(request()))[0] == 200
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
