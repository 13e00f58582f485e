"""Clients of a soak: what they do, right and wrong, and what they may be answered.

Each act ends with a word: `answered`, `left` where no answer was waited for, or the status of a
refusal. What no documented server does is a `BrokenLawError`.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.client import HTTPResponse
from typing import Any

from .requests import (
    CHAT,
    TEXT,
    VARIANTS,
    Answer,
    SoakRequest,
    media_part,
    read_answer,
    read_stream,
    url_of,
)
from .settings import DOCUMENTED, MIX, OVERSIZED, TIMEOUT

BROKEN = "broken"
"""The end of what breaks a law."""
MAX_BROKEN = 20
"""Broken laws of a process that are reported whole."""
DECODER = "the decoder ended while it read it"
"""What a client is told whose file was with a process that was killed."""
PIECE = 1 << 16
SMALL = 4096
"""Bytes of the buffer of a client that reads slowly."""
MALFORMED = [
    b"", b"{", b"\xff\xfe", b"nonsense", b'{"messages": [}', b"[" * 5000, b"1e999", b"{} {}",
]  # fmt: skip
WRONG: list[dict[str, Any]] = [
    {"messages": 5}, {"messages": [{}]}, {"max_tokens": "many"}, {"temperature": [1]}, {"n": -1},
    {"n": 10**9}, {"top_p": 7}, {"seed": "a"}, {"stop": {"a": 1}}, {"stream": "perhaps"},
    {"logit_bias": {"x": 1}}, {"messages": [{"role": 1}]},
]  # fmt: skip
"""Fields of a wrong type, or out of their range."""


class BrokenLawError(Exception):
    """A server that did what it must not."""


@dataclass(frozen=True)
class Reply:
    """An answer that came whole."""

    status: int
    content: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)


def connect(address: str, slowly: bool = False) -> socket.socket:
    """Connect to `http://host:port`.

    Args:
        slowly: with the smallest of buffers, so that who reads nothing holds the server up.
    """
    host, port = address.removeprefix("http://").split(":")
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if slowly:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        made.settimeout(TIMEOUT)
        made.connect((host, int(port)))
    except BaseException:
        made.close()
        raise
    return made


def head(path: str, length: int | None, host: str = "localhost", method: str = "POST") -> bytes:
    """Return the head of a request on a connection of its own; without a length it has chunks."""
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\n{framing}\r\n\r\n"
    ).encode()


def read(
    connection: socket.socket,
    pauses: list[float] | None = None,
    on_head: Callable[[], object] = lambda: None,
) -> Reply:
    """Read the answer.

    Args:
        pauses: seconds without reading, before each of the first pieces.
        on_head: called once the status is there.

    Raises:
        OSError: reset, or nothing came for too long.
        http.client.HTTPException: cut off in the middle.
    """
    response = HTTPResponse(connection)
    try:
        response.begin()
        on_head()
        content = bytearray()
        for pause in pauses or ():
            time.sleep(pause)
            content += response.read1(PIECE)
        content += response.read()
        return Reply(response.status, bytes(content), dict(response.headers))
    finally:
        response.close()


def ask(
    address: str,
    path: str,
    body: bytes | None,
    pauses: list[float] | None = None,
    host: str = "localhost",
) -> Reply:
    """Send a request and read its answer; without a body it is a GET."""
    with connect(address, slowly=pauses is not None) as connection:
        method = "GET" if body is None else "POST"
        connection.sendall(head(path, len(body or b""), host, method) + (body or b""))
        return read(connection, pauses)


def refused(reply: Reply) -> str:
    """Return the word for a refusal, which has the form of docs/serve.md.

    Raises:
        BrokenLawError: a fault of the server or of its engine, or no status of the documentation.
    """
    if reply.status not in DOCUMENTED - {200}:
        raise BrokenLawError(f"status {reply.status}: {reply.content[:300]!r}")
    error = json.loads(reply.content)["error"]
    if set(error) != {"message", "type", "param", "code"} or not error["message"]:
        raise BrokenLawError(f"status {reply.status} without its form: {error}")
    if error["code"] == "engine_error":
        raise BrokenLawError(f"status {reply.status}: {error['message']}")
    if reply.status == 429 and "retry-after" not in {name.lower() for name in reply.headers}:
        raise BrokenLawError("status 429 does not say when to come back")
    return "400 decoder killed" if DECODER in error["message"] else str(reply.status)


@dataclass
class SoakClient:
    """One client.

    Attributes:
        address: of the server.
        requests: well-formed ones.
        output: what they are answered.
        media: files that they show.
        damaged: a large picture that is cut off.
        burst: requests of a burst.
        draw: what it does next.
    """

    address: str
    requests: list[SoakRequest]
    output: list[Answer] = field(repr=False)
    media: dict[str, bytes] = field(repr=False)
    damaged: bytes = field(repr=False)
    burst: int
    draw: random.Random

    def do(self, kind: str) -> list[str]:
        """Do one thing of `ACTS`; returns how its requests ended.

        Raises:
            BrokenLawError: the server lost it, or answered what it must not.
        """
        ends = ACTS[kind](self)
        return [ends] if isinstance(ends, str) else ends

    def any_index(self) -> int:
        """Return the number of one of the requests."""
        return self.draw.randrange(len(self.requests))

    def body(self, index: int, **more: Any) -> bytes:
        """Return a well-formed request, with one of many contents of each file."""
        request = self.requests[index]
        variant = self.draw.randrange(VARIANTS)
        urls = {name: url_of(name, self.media[name], variant) for name in request.media}
        return request.encoded(urls, **more)

    def send(
        self, index: int, body: bytes, stream: bool = False, pauses: list[float] | None = None
    ) -> str:
        """Send a request and hold the answer to what it has to be."""
        return self.judge(index, ask(self.address, self.requests[index].path, body, pauses), stream)

    def judge(self, index: int, reply: Reply, stream: bool) -> str:
        """Return what a reply to a well-formed request is."""
        if reply.status != 200:
            return refused(reply)
        content = reply.content
        answer = read_stream(content) if stream else read_answer(json.loads(content))
        if answer != self.output[index]:
            raise BrokenLawError(f"{self.requests[index]} says {answer}, not {self.output[index]}")
        return "answered"

    def expect(self, statuses: set[int], path: str, body: bytes | None, **options: Any) -> str:
        """Ask what is refused."""
        reply = ask(self.address, path, body, **options)
        if reply.status not in statuses:
            raise BrokenLawError(f"{reply.status} {reply.content[:300]!r}, not {statuses}")
        return refused(reply) if reply.status != 200 else "answered"

    def refuse(self, body: Any, path: str = CHAT) -> str:
        """Ask what is malformed."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.expect({400, 429}, path, data)

    def show(self, parts: list[dict[str, Any]]) -> str:
        """Show files that can't be read."""
        return self.refuse({"messages": [{"role": "user", "content": parts}], "max_tokens": 2})

    def well_formed(self) -> str:
        """Ask, then wait a moment to think."""
        index, stream = self.any_index(), self.draw.random() < 0.5
        end = self.send(index, self.body(index, stream=stream), stream)
        if end == "429":
            time.sleep(1.0)
        time.sleep(self.draw.expovariate(10))
        return end

    def slow_reader(self) -> str:
        """Leave a stream unread for seconds, three times."""
        index = self.any_index()
        pauses = [self.draw.uniform(0.5, 4.0) for _ in range(3)]
        return self.send(index, self.body(index, stream=True), True, pauses)

    def deadline(self) -> str:
        """Ask with a deadline that passes, or does not."""
        index = self.any_index()
        limit = self.draw.choice([1, 5, 20, 100, 500])
        return self.send(index, self.body(index, deadline_ms=limit))

    def hang_up(self, in_body: bool = False) -> str:
        """Leave before the answer, in the middle of a stream, or while the body is sent."""
        index = self.any_index()
        body = self.body(index, stream=self.draw.random() < 0.7)
        end = self.draw.randrange(len(body)) if in_body else len(body)
        with connect(self.address) as connection:
            connection.sendall(head(self.requests[index].path, len(body)) + body[:end])
            if not in_body and self.draw.random() < 0.6:
                connection.recv(self.draw.choice([1, 200, 2000]))
            time.sleep(self.draw.expovariate(5))
        return "left"

    def truncated_body(self) -> str:
        """Say the end of the body is here where it is not; what is no JSON then is refused."""
        body = self.body(self.any_index())
        return self.refuse(body[: self.draw.randrange(1, len(body))])

    def wrong_type(self) -> str:
        """Send JSON with a field that is wrong."""
        right = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
        return self.refuse({**right, **self.draw.choice(WRONG)})

    def broken_media(self) -> str:
        """Show a picture or clip that is damaged, of another kind, or nothing at all."""
        name = self.draw.choice(sorted(self.media))
        content = self.media[name]
        cut = content[: self.draw.randrange(len(content) // 2)]
        damaged = url_of(name, self.draw.choice([cut, b"", self.draw.randbytes(2000)]))
        urls = [damaged, "data:image/png;base64,???", "file:///etc/passwd"]
        return self.show([media_part(name, self.draw.choice(urls))])

    def damaged_picture(self) -> str:
        """Show a large picture that takes long to decode, and is cut off at its end."""
        return self.show([media_part("picture", url_of("picture", self.damaged))])

    def too_long(self) -> str:
        """Send more tokens than the model takes."""
        text = self.draw.choice(["red " * 5000, "x" * 2_000_000])
        return self.refuse({"messages": [{"role": "user", "content": text}]})

    def stranger(self) -> str:
        """Ask for other paths, methods and hosts."""
        if self.draw.random() < 0.5:
            path = self.draw.choice(["/v1/embeddings", "/", "/health"])
            return self.expect({404, 405}, path, b"{}")
        return self.expect({403}, "/v1/models", None, host="evil.example")

    def oversized(self, chunked: bool = False) -> str:
        """Send a body above `--max-body` to its end before the answer is read."""
        piece, count = b" " * 1_000_000, OVERSIZED // 1_000_000
        with connect(self.address) as connection:
            connection.sendall(head(CHAT, None if chunked else count * len(piece)))
            for _ in range(count):
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            if chunked:
                connection.sendall(b"0\r\n\r\n")
            reply = read(connection)
        if reply.status not in (413, 429):
            raise BrokenLawError(f"{reply.status} {reply.content[:300]!r}, not 413")
        return refused(reply)

    def send_burst(self) -> list[str]:
        """Ask for more at once than the server holds; each is answered or told to come back."""
        index = self.any_index()
        body = self.body(index)
        with ThreadPoolExecutor(self.burst) as pool:
            sent = [pool.submit(self.send, index, body) for _ in range(self.burst)]
        return [each.result() for each in sent]

    def slowloris(self) -> str:
        """Send a head a letter at a time; the server ends that."""
        with connect(self.address) as connection:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-")
            end = time.monotonic() + 60
            connection.settimeout(0.5)
            while time.monotonic() < end:
                try:
                    connection.sendall(b"a")
                    if not connection.recv(1):
                        return "closed"
                except TimeoutError:
                    continue
                except OSError:
                    return "closed"
        raise BrokenLawError("a head that never ends is waited for")


ACTS: dict[str, Callable[[SoakClient], str | list[str]]] = {
    "ask": SoakClient.well_formed,
    "slow-reader": SoakClient.slow_reader,
    "deadline": SoakClient.deadline,
    "hang-up": SoakClient.hang_up,
    "hang-up-in-body": lambda client: client.hang_up(in_body=True),
    "truncated-body": SoakClient.truncated_body,
    "malformed": lambda client: client.refuse(
        client.draw.choice(MALFORMED), client.draw.choice([CHAT, TEXT])
    ),
    "wrong-type": SoakClient.wrong_type,
    "broken-media": SoakClient.broken_media,
    "damaged-picture": SoakClient.damaged_picture,
    "too-long": SoakClient.too_long,
    "stranger": SoakClient.stranger,
    "oversized": SoakClient.oversized,
    "oversized-chunked": lambda client: client.oversized(chunked=True),
    "burst": SoakClient.send_burst,
    "slowloris": SoakClient.slowloris,
}


class Outcomes:
    """How often what came to which end.

    Attributes:
        counts: by kind and end; an end that breaks a law is `broken`.
        broken: some of these, in words.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.broken: list[str] = []
        self._lock = threading.Lock()

    def run(self, client: SoakClient, kind: str) -> None:
        """Do one thing and count its end."""
        try:
            ends, message = client.do(kind), ""
        except Exception as error:  # whatever it is, the request is lost
            ends, message = [BROKEN], f"{kind}: {type(error).__name__}: {error}"[:1000]
        with self._lock:
            self.counts.update((kind, end) for end in ends)
            if message and len(self.broken) < MAX_BROKEN:
                self.broken.append(message)


def run_clients(
    client: SoakClient, seconds: float, threads: int, seed: int
) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Run clients like one until the time is over and each has its last answer.

    Returns:
        `Outcomes.counts` and `Outcomes.broken`; a pool of processes calls it.
    """
    outcomes, end = Outcomes(), time.monotonic() + seconds
    kinds, weights = list(MIX), list(MIX.values())

    def live(number: int) -> None:
        copy = replace(client, draw=random.Random(1000 * seed + number))
        while time.monotonic() < end:
            if number:
                outcomes.run(copy, copy.draw.choices(kinds, weights)[0])
            else:  # one thread sends heads that never end
                outcomes.run(copy, "slowloris")
                time.sleep(copy.draw.uniform(0, 10))

    with ThreadPoolExecutor(threads + 1) as pool:
        list(pool.map(live, range(threads + 1)))
    return outcomes.counts, outcomes.broken
