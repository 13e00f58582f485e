"""What clients of a soak do, right and wrong, and what they may be answered.

Each returns a word about its end: `answered`, `left` where no answer was waited for, or the status
of a refusal. What no documented server does is a `BrokenLawError`.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .connection import Reply, ask, connect, head, read
from .media import VARIANTS, url_of
from .requests import CHAT, TEXT, SoakAnswer, SoakRequest
from .settings import DOCUMENTED, OVERSIZED

DECODER = "the decoder ended while it read it"
"""What a client is told whose file was with a process that was killed."""


class BrokenLawError(Exception):
    """A server that did what it must not."""


@dataclass
class SoakClient:
    """One client.

    Attributes:
        address: of the server.
        requests: well-formed ones.
        said: what they are answered.
        media: files that they show.
        damaged: a large picture that is cut off.
        burst: requests of a burst.
        draw: what it does next.
    """

    address: str
    requests: list[SoakRequest]
    output: list[SoakAnswer] = field(repr=False)
    media: dict[str, bytes] = field(repr=False)
    damaged: bytes = field(repr=False)
    burst: int
    draw: random.Random

    def do(self, kind: str) -> list[str]:
        """Do one thing of `settings.MIX`; how its requests ended.

        Raises:
            BrokenLawError: the server lost it, or answered what it must not.
        """
        ends = KINDS[kind](self)
        return [ends] if isinstance(ends, str) else ends

    def body(self, index: int, **more: Any) -> bytes:
        """A well-formed request, with one of many contents of each file."""
        request = self.requests[index]
        variant = self.draw.randrange(VARIANTS)
        urls = {name: url_of(name, self.media[name], variant) for name in request.media}
        return request.encoded(urls, **more)

    def send_request(self, pauses: list[float] | None = None, stream: bool | None = None) -> str:
        """Ask one of the requests and hold the answer to what it has to be."""
        index = self.draw.randrange(len(self.requests))
        stream = self.draw.random() < 0.5 if stream is None else stream
        reply = ask(
            self.address,
            self.requests[index].path,
            self.body(index, stream=stream),
            pauses=pauses,
        )
        return self.judged(index, reply, stream)

    def judged(self, index: int, reply: Reply, stream: bool) -> str:
        """What a reply to a well-formed request is."""
        if reply.status != 200:
            return refused(reply)
        content = reply.content
        answer = SoakAnswer.of_stream(content) if stream else SoakAnswer.of(json.loads(content))
        if answer != self.output[index]:
            raise BrokenLawError(f"{self.requests[index]} says {answer}, not {self.output[index]}")
        return "answered"

    def expect(self, statuses: set[int], path: str, body: bytes | None, **options: Any) -> str:
        """Ask what is refused."""
        reply = ask(self.address, path, body, **options)
        if reply.status not in statuses:
            raise BrokenLawError(f"{reply.status} {reply.content[:300]!r}, not {statuses}")
        return refused(reply) if reply.status != 200 else "answered"


def refused(reply: Reply) -> str:
    """The word for a refusal, in the form of docs/serve.md.

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


def well_formed(client: SoakClient) -> str:
    """A request, and a moment to think."""
    end = client.send_request()
    if end == "429":
        time.sleep(1.0)
    time.sleep(client.draw.expovariate(10))
    return end


def slow_reader(client: SoakClient) -> str:
    """A stream that is not read for seconds, three times."""
    pauses = [client.draw.uniform(0.5, 4.0) for _ in range(3)]
    return client.send_request(pauses, stream=True)


def deadline(client: SoakClient) -> str:
    """A deadline that passes, or does not."""
    index = client.draw.randrange(len(client.requests))
    body = client.body(index, deadline_ms=client.draw.choice([1, 5, 20, 100, 500]))
    reply = ask(client.address, client.requests[index].path, body)
    return client.judged(index, reply, False)


def hang_up(client: SoakClient) -> str:
    """Leave before the answer, or in the middle of a stream."""
    index = client.draw.randrange(len(client.requests))
    body = client.body(index, stream=client.draw.random() < 0.7)
    with connect(client.address) as connection:
        connection.sendall(head(client.requests[index].path, len(body)) + body)
        if client.draw.random() < 0.6:
            connection.recv(client.draw.choice([1, 200, 2000]))
        time.sleep(client.draw.expovariate(5))
    return "left"


def hang_up_in_body(client: SoakClient) -> str:
    """Leave while the body is sent."""
    body = client.body(client.draw.randrange(len(client.requests)))
    with connect(client.address) as connection:
        connection.sendall(head(CHAT, len(body)) + body[: client.draw.randrange(len(body))])
        time.sleep(client.draw.expovariate(5))
    return "left"


def truncated_body(client: SoakClient) -> str:
    """Say the end of the body is here where it is not; what is no JSON then is refused."""
    body = client.body(client.draw.randrange(len(client.requests)))
    return client.expect({400, 429}, CHAT, body[: client.draw.randrange(1, len(body))])


def malformed(client: SoakClient) -> str:
    """What is no JSON."""
    bodies = [
        b"",
        b"{",
        b"\xff\xfe",
        b"nonsense",
        b'{"messages": [}',
        b"[" * 5000,
        b"1e999",
        b"{} {}",
    ]
    return client.expect({400, 429}, client.draw.choice([CHAT, TEXT]), client.draw.choice(bodies))


def wrong_type(client: SoakClient) -> str:
    """JSON with a field that is of a wrong type, or out of its range."""
    right: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
    wrong: dict[str, Any] = client.draw.choice(
        [
            {"messages": 5}, {"messages": [{}]}, {"max_tokens": "many"}, {"temperature": [1]},
            {"n": -1}, {"n": 10**9}, {"top_p": 7}, {"seed": "a"}, {"stop": {"a": 1}},
            {"stream": "perhaps"}, {"logit_bias": {"x": 1}}, {"messages": [{"role": 1}]},
        ]
    )  # fmt: skip
    return client.expect({400, 429}, CHAT, json.dumps({**right, **wrong}).encode())


def broken_media(client: SoakClient) -> str:
    """Pictures and clips that are damaged, of another kind, or nothing at all."""
    name = client.draw.choice(sorted(client.media))
    content = client.media[name]
    cut = content[: client.draw.randrange(len(content) // 2)]
    damaged = client.draw.choice([cut, b"", client.draw.randbytes(2000)])
    kind = "video_url" if name.startswith("clip") else "image_url"
    url = client.draw.choice(
        [url_of(name, damaged), "data:image/png;base64,???", "file:///etc/passwd"]
    )
    parts = [{"type": kind, kind: {"url": url}}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}
    return client.expect({400, 429}, CHAT, json.dumps(body).encode())


def damaged_picture(client: SoakClient) -> str:
    """A large picture that takes long to decode, and is cut off at its end."""
    url = url_of("picture", client.damaged)
    parts = [{"type": "image_url", "image_url": {"url": url}}]
    body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 2}
    return client.expect({400, 429}, CHAT, json.dumps(body).encode())


def too_long(client: SoakClient) -> str:
    """More tokens than the model takes."""
    text = client.draw.choice(["red " * 5000, "x" * 2_000_000])
    body = {"messages": [{"role": "user", "content": text}]}
    return client.expect({400, 429}, CHAT, json.dumps(body).encode())


def stranger(client: SoakClient) -> str:
    """Other paths, methods and hosts."""
    if client.draw.random() < 0.5:
        return client.expect(
            {404, 405}, client.draw.choice(["/v1/embeddings", "/", "/health"]), b"{}"
        )
    return client.expect({403}, "/v1/models", None, host="evil.example")


def oversized(client: SoakClient, declared: bool = True) -> str:
    """A body above `--max-body`, sent to its end before the answer is read."""
    piece, count = b" " * 1_000_000, OVERSIZED // 1_000_000
    with connect(client.address) as connection:
        connection.sendall(head(CHAT, count * len(piece) if declared else None))
        for _ in range(count):
            connection.sendall(piece if declared else b"%x\r\n%b\r\n" % (len(piece), piece))
        if not declared:
            connection.sendall(b"0\r\n\r\n")
        reply = read(connection)
    if reply.status not in (413, 429):
        raise BrokenLawError(f"{reply.status} {reply.content[:300]!r}, not 413")
    return refused(reply)


def burst(client: SoakClient) -> list[str]:
    """More requests at once than the server holds; each is answered or told to come back."""
    index = client.draw.randrange(len(client.requests))
    body = client.body(index)
    ends: list[str] = []
    errors: list[Exception] = []

    def send() -> None:
        try:
            reply = ask(client.address, client.requests[index].path, body)
            ends.append(client.judged(index, reply, False))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=send) for _ in range(client.burst)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    return ends


def slowloris(client: SoakClient) -> str:
    """A head that comes a letter at a time; the server ends that."""
    with connect(client.address) as connection:
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


def oversized_chunked(client: SoakClient) -> str:
    """As `oversized`, with a length that nobody tells."""
    return oversized(client, declared=False)


KINDS: dict[str, Callable[[SoakClient], str | list[str]]] = {
    "ask": well_formed,
    "slow-reader": slow_reader,
    "deadline": deadline,
    "hang-up": hang_up,
    "hang-up-in-body": hang_up_in_body,
    "truncated-body": truncated_body,
    "malformed": malformed,
    "wrong-type": wrong_type,
    "broken-media": broken_media,
    "damaged-picture": damaged_picture,
    "too-long": too_long,
    "stranger": stranger,
    "oversized": oversized,
    "oversized-chunked": oversized_chunked,
    "burst": burst,
    "slowloris": slowloris,
}
