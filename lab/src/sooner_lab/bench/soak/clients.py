"""Clients of a soak: what they do, right and wrong, and what they may be answered.

Each act ends with a word: `answered`, `left` where no answer was waited for, or the status of a
refusal. What no documented server does is a `BrokenLawError`.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import httpx

from .requests import (
    CHAT,
    VARIANTS,
    Answer,
    SoakRequest,
    media_part,
    read_answer,
    read_stream,
    url_of,
)
from .settings import DOCUMENTED, MIX, TIMEOUT

BROKEN = "broken"
"""The end of what breaks a law."""
MAX_BROKEN = 20
"""Broken laws that are reported whole."""
MEGABYTE = b" " * 1_000_000
OVERSIZED = 70
"""Megabytes of a body that is too large: `--max-body` is 64 MiB by default."""
MALFORMED: list[bytes | dict[str, Any]] = [
    b"", b"{", b"\xff\xfe", b"nonsense", b'{"messages": [}', b"[" * 5000, b"1e999", b"{} {}",
    {"messages": 5}, {"messages": [{}]}, {"max_tokens": "many"}, {"temperature": [1]}, {"n": -1},
    {"n": 10**9}, {"top_p": 7}, {"seed": "a"}, {"stop": {"a": 1}}, {"stream": "perhaps"},
    {"logit_bias": {"x": 1}}, {"messages": [{"role": 1}]},
]  # fmt: skip
"""Bodies that are no JSON, and fields of a wrong type or out of their range."""
TOO_LONG = ("red " * 5000, "x" * 2_000_000)
"""Texts of more tokens than the model takes."""


def open_client() -> httpx.Client:
    """Return a client that opens a connection for each request and goes through no proxy."""
    limits, closing = httpx.Limits(max_connections=None), {"Connection": "close"}
    return httpx.Client(timeout=TIMEOUT, limits=limits, headers=closing, trust_env=False)


class BrokenLawError(Exception):
    """A server that did what it must not."""


def refused(status: int, headers: httpx.Headers, content: bytes) -> str:
    """Return the word for a refusal, which has the form of docs/serve.md.

    Raises:
        BrokenLawError: a fault of the server or of its engine, or no status of the documentation.
    """
    if status not in DOCUMENTED - {200}:
        raise BrokenLawError(f"status {status}: {content[:300]!r}")
    error = json.loads(content)["error"]
    if set(error) != {"message", "type", "param", "code"} or not error["message"]:
        raise BrokenLawError(f"status {status} without its form: {error}")
    if error["code"] == "engine_error":
        raise BrokenLawError(f"status {status}: {error['message']}")
    if status == 429 and "retry-after" not in headers:
        raise BrokenLawError("status 429 does not say when to come back")
    return str(status)


@dataclass
class SoakClient:
    """One client, and how often its acts, and those of its copies, came to which end.

    Attributes:
        address: of the server.
        requests: well-formed ones.
        output: what they are answered.
        media: files that they show.
        burst: requests of a burst.
        draw: what it does next.
        counts: by kind and end; an end that breaks a law is `broken`.
        broken: some of these, in words.
        lock: of both.
        http: connections, which all copies share.
    """

    address: str
    requests: list[SoakRequest]
    output: list[Answer] = field(repr=False)
    media: dict[str, bytes] = field(repr=False)
    burst: int
    draw: random.Random
    counts: Counter[tuple[str, str]] = field(default_factory=Counter, repr=False)
    broken: list[str] = field(default_factory=list, repr=False)
    lock: Any = field(default_factory=threading.Lock, repr=False)
    http: httpx.Client = field(default_factory=open_client, repr=False)

    def run(self, seconds: float, clients: int, seed: int) -> None:
        """Run so many copies until the time is over and each has its last answer."""
        end, kinds, weights = time.monotonic() + seconds, list(MIX), list(MIX.values())

        def live(number: int) -> None:
            copy = replace(self, draw=random.Random(1000 * seed + number))
            while time.monotonic() < end:
                copy.act(copy.draw.choices(kinds, weights)[0])

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(live, range(clients)))

    def act(self, kind: str) -> None:
        """Do one thing of `ACTS` and count its end."""
        message = ""
        try:
            ends = ACTS[kind](self)
        except Exception as error:  # whatever it is, the request is lost
            ends, message = BROKEN, f"{kind}: {type(error).__name__}: {error}"[:1000]
        with self.lock:
            self.counts.update((kind, end) for end in ([ends] if isinstance(ends, str) else ends))
            if message and len(self.broken) < MAX_BROKEN:
                self.broken.append(message)

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
        self,
        index: int,
        body: bytes,
        stream: bool = False,
        pauses: Sequence[float] = (),
        on_head: Callable[[], object] = lambda: None,
    ) -> str:
        """Send a well-formed request and compare the answer with the one that it had alone.

        Args:
            pauses: seconds without reading, after each of the first pieces.
            on_head: is called once the status is there.
        """
        url, content = self.address + CHAT, bytearray()
        with self.http.stream("POST", url, content=body) as reply:
            on_head()
            waits = iter(pauses)
            for piece in reply.iter_bytes():
                content += piece
                time.sleep(next(waits, 0.0))
            if reply.status_code != 200:
                return refused(reply.status_code, reply.headers, bytes(content))
        answer = read_stream(bytes(content)) if stream else read_answer(json.loads(content))
        if answer != self.output[index]:
            raise BrokenLawError(f"{self.requests[index]} says {answer}, not {self.output[index]}")
        return "answered"

    def expect(self, statuses: set[int], body: Any, headers: Any = None) -> str:
        """Ask what has to be refused with one of the statuses."""
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        url = self.address + CHAT
        reply = self.http.post(url, content=content, headers=headers)
        if reply.status_code not in statuses:
            raise BrokenLawError(f"{reply.status_code} {reply.content[:300]!r}, not {statuses}")
        if reply.status_code == 200:
            return "answered"
        return refused(reply.status_code, reply.headers, reply.content)

    def ask(self) -> str:
        """Ask, then wait a moment to think."""
        index, stream = self.any_index(), self.draw.random() < 0.5
        end = self.send(index, self.body(index, stream=stream), stream)
        time.sleep(1.0 if end == "429" else self.draw.expovariate(10))
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

    def hang_up(self) -> str:
        """Leave before the answer, or in the middle of a stream."""
        index = self.any_index()
        body, url = self.body(index, stream=True), self.address + CHAT
        if self.draw.random() < 0.5:
            with suppress(httpx.TimeoutException):
                self.http.post(url, content=body, timeout=self.draw.expovariate(5) + 1e-3)
        else:
            with self.http.stream("POST", url, content=body) as reply:
                next(reply.iter_bytes(), None)
        return "left"

    def malformed(self) -> str:
        """Send what is no request."""
        wrong = self.draw.choice(MALFORMED)
        right = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
        return self.expect({400, 429}, {**right, **wrong} if isinstance(wrong, dict) else wrong)

    def broken_media(self) -> str:
        """Show a picture or clip that is damaged, of another kind, or nothing at all."""
        name = self.draw.choice(sorted(self.media))
        content = self.media[name]
        cut = content[: self.draw.randrange(len(content) // 2)]
        damaged = url_of(name, self.draw.choice([cut, b"", self.draw.randbytes(2000)]))
        urls = [damaged, "data:image/png;base64,???", "file:///etc/passwd"]
        parts = [media_part(name, self.draw.choice(urls))]
        message = {"role": "user", "content": parts}
        return self.expect({400, 429}, {"messages": [message], "max_tokens": 2})

    def too_large(self) -> str:
        """Send more tokens than the model takes, or a body above `--max-body`."""
        if self.draw.random() < 0.5:
            text = self.draw.choice(TOO_LONG)
            return self.expect({400, 429}, {"messages": [{"role": "user", "content": text}]})
        length = {"Content-Length": str(OVERSIZED * len(MEGABYTE))}
        headers = length if self.draw.random() < 0.5 else None  # else it comes in chunks
        return self.expect({413, 429}, repeat(MEGABYTE, OVERSIZED), headers)

    def send_burst(self) -> list[str]:
        """Ask for more at once than the server holds; each is answered or told to come back."""
        index = self.any_index()
        body = self.body(index)
        with ThreadPoolExecutor(self.burst) as pool:
            sent = [pool.submit(self.send, index, body) for _ in range(self.burst)]
        return [each.result() for each in sent]


ACTS: dict[str, Callable[[SoakClient], str | list[str]]] = {
    "ask": SoakClient.ask,
    "slow-reader": SoakClient.slow_reader,
    "deadline": SoakClient.deadline,
    "hang-up": SoakClient.hang_up,
    "malformed": SoakClient.malformed,
    "broken-media": SoakClient.broken_media,
    "too-large": SoakClient.too_large,
    "burst": SoakClient.send_burst,
}
