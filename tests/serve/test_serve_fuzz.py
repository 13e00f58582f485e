"""Bad requests by the thousand: every one is refused with its status, and the server keeps running.

hypothesis writes bodies that are nearly right: 400 by default, 6,000 in the test that is marked
`soak`.
"""

from __future__ import annotations

import base64
import errno
import http.client
import io
import json
import logging
import struct
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from PIL import Image

from serve.robots import json_numpy, npy, png, request, served
from tiny_policy import image, policy

pytestmark = pytest.mark.slow

SOON = 30
"""Seconds in which each request is answered; the tiny policy takes milliseconds."""
HONEST = {400, 401, 403, 404, 405, 408, 413, 422, 429, 499, 503, 504}
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
        "details": values,
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
    objects.map(lambda report: json.dumps({"encoded": json.dumps(report)}).encode()),
    damaged,
    deep.map(str.encode),
    some.binary(max_size=200),
)
sent_headers = some.fixed_dictionaries(
    {},
    optional={
        "X-Deadline-Ms": some.one_of(
            some.sampled_from(["nan", "inf", "1e999", "-1", "", "0x10", "1_000", "soon"]),
            some.text(some.characters(min_codepoint=33, max_codepoint=126), max_size=20),
        ),
        "X-Request-Id": some.text(some.characters(min_codepoint=33, max_codepoint=255), max_size=9),
        "Content-Type": some.sampled_from(["text/plain", "multipart/form-data", "x"]),
    },
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server of a tiny real policy; it lives through all of this."""
    with served(policy(horizon=1), max_body=1 << 20) as where:
        yield where


class Client:
    """Sends raw bodies over one connection, and checks each answer.

    Attributes:
        statuses: how often each came.
    """

    def __init__(self, address: str) -> None:
        self.host = address.removeprefix("http://")
        self.connection = http.client.HTTPConnection(self.host, timeout=SOON)
        self.statuses: Counter[int] = Counter()

    def send(self, body: bytes, headers: dict[str, str]) -> None:
        try:
            self.connection.request("POST", "/act", body, headers)
            answer = self.connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            # An idle connection is closed after five seconds.
            self.connection.close()
            self.connection.request("POST", "/act", body, headers)
            answer = self.connection.getresponse()
        raw = answer.read()
        self.statuses[answer.status] += 1
        assert answer.status == 200 or answer.status in HONEST, (answer.status, raw, body)
        assert answer.headers["X-Request-Id"]
        reply = json.loads(raw)
        if answer.status != 200:
            assert reply["detail"]
            assert "\n" not in reply["detail"]
            assert len(raw) < 2_000


def lives(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """The server is ready, acts, and logged no traceback."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=SOON)
    connection.request("GET", "/health")
    assert json.loads(connection.getresponse().read())["status"] == "ready"
    connection.request("POST", "/act", json.dumps(request()).encode())
    assert connection.getresponse().status == 200
    broken = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not broken
    waiting = [thread.name for thread in threading.enumerate() if "sooner-read" in thread.name]
    assert len(waiting) <= 2


def fuzz_bodies(address: str, count: int) -> Counter[int]:
    """Send `count` bodies of hypothesis' making."""
    client = Client(address)

    @settings(
        max_examples=count, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(bodies, sent_headers)
    def send(body: bytes, headers: dict[str, str]) -> None:
        client.send(body, headers)

    send()
    return client.statuses


def test_bad_requests_are_refused_with_their_status(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    statuses = fuzz_bodies(address, 400)
    lives(address, caplog)
    assert sum(count for status, count in statuses.items() if status != 200) >= 250
    assert statuses[400] > 20
    assert statuses[422] > 20


@pytest.mark.soak
def test_five_thousand_bad_requests(address: str, caplog: pytest.LogCaptureFixture) -> None:
    statuses = fuzz_bodies(address, 6000)
    lives(address, caplog)
    assert sum(count for status, count in statuses.items() if status != 200) >= 4_000


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
        assert int(answer.split(b" ")[1]) in HONEST
    lives(address, caplog)
