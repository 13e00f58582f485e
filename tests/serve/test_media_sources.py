"""Data URIs, files below a root, and addresses that are checked before they are dialled."""

from __future__ import annotations

import asyncio
import base64
import http.server
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from sooner.serve.media.fetching import fetch, is_public, parse
from sooner.serve.media.reader import read
from sooner.serve.media.sources import MediaError, MediaSettings

LIMITS = MediaSettings(max_media_bytes=1000, media_seconds=1.0)
PUBLIC = "93.184.216.34"


def test_a_data_uri_is_its_content() -> None:
    encoded = base64.b64encode(bytes(range(200))).decode()
    assert read(f"data:image/png;base64,{encoded}", LIMITS) == bytes(range(200))
    in_lines = f"DATA:;charset=x;BASE64,{encoded[:60]}\n {encoded[60:]}"
    assert read(in_lines, LIMITS) == bytes(range(200))
    assert read("data:,a%20b", LIMITS) == b"a b"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("data:image/png;base64,@@@@", "no base64"),
        ("data:image/png;base64,AAA", "no base64"),
        ("data:image/png", "no data URI"),
        ("data:;base64," + "A" * 1400, "1050 bytes; at most 1000"),
        ("data:," + "A" * 1400, "1400 bytes; at most 1000"),
        ("ftp://host/file", "scheme 'ftp'"),
        ("javascript:alert(1)", "scheme 'javascript'"),
        ("http://example.com/a.png", "--allow-remote-media"),
        ("file:///etc/passwd", "--media-root"),
        ("etc/passwd", "--media-root"),
        ("", "--media-root"),
    ],
)
def test_what_a_server_without_a_root_and_network_refuses(url: str, message: str) -> None:
    with pytest.raises(MediaError, match=message):
        read(url, LIMITS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    home = tmp_path / "media"
    (home / "deep er").mkdir(parents=True)
    (home / "deep er" / "a.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("outside")
    (tmp_path / "media-2").mkdir()
    (tmp_path / "media-2" / "a.txt").write_text("beside")
    (home / "link.txt").symlink_to(tmp_path / "secret.txt")
    (home / "own.txt").symlink_to(home / "deep er" / "a.txt")
    (home / "up").symlink_to(tmp_path, target_is_directory=True)
    (home / "big.txt").write_bytes(bytes(1001))
    os.mkfifo(home / "pipe")
    return home


def below(root: Path) -> MediaSettings:
    return replace(LIMITS, media_root=str(root))


def test_files_below_the_root_are_read(root: Path) -> None:
    for url in ("deep er/a.txt", f"file://{root}/deep%20er/a.txt", f"{root}/deep er/a.txt"):
        assert read(url, below(root)) == b"inside"
    linked = root.parent / "linked"
    linked.symlink_to(root)
    assert read(f"file://localhost{linked}/deep%20er/a.txt", below(linked)) == b"inside"


@pytest.mark.parametrize(
    "url",
    [
        "../secret.txt", "deep er/../../secret.txt", "file://{root}/../secret.txt",
        "file://{root}/%2e%2e/secret.txt", "file:///etc/passwd", "/etc/passwd",
        "{root}-2/a.txt", "link.txt", "own.txt", "up/secret.txt", "pipe", "deep er", ".", "",
        "nothing.txt", "big.txt", "file://host{root}/deep%20er/a.txt", "deep er/a.txt\0.png",
    ],
)  # fmt: skip
def test_nothing_else_is(root: Path, url: str) -> None:
    with pytest.raises(MediaError) as caught:
        read(url.format(root=root), below(root))
    assert "\n" not in str(caught.value)


def test_a_link_that_is_made_meanwhile_is_not_followed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes below the root swaps a folder for a link between check and opening."""
    usual, swapped = os.open, []

    def swap(path: object, *rest: object, **more: object) -> int:
        if path == "deep er" and not swapped:
            (root / "deep er").rename(root / "other")
            (root / "deep er").symlink_to(root.parent / "media-2", target_is_directory=True)
            swapped.append(path)
        return usual(path, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(MediaError, match="symbolic links"):
        read("deep er/a.txt", below(root))
    assert swapped


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255",
        "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "239.1.1.1",
        "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1",
        "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "fec0::1", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::",
        "2001:0:7f00:1::", "2001:db8::1", "nonsense", "",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_addresses_that_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:pw@host/", "http://", "http:///path", "http://host:99999/", "http://a b/",
        "http://host/\r\nX: y", "http://host\\@other/", "http://host/\x00",
    ],
)  # fmt: skip
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(MediaError, match="no URL"):
        parse(url)


Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Site:
    """A server on the loopback that a planted network takes for one of the internet."""

    def __init__(self) -> None:
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.seen.append((self.path, dict(self.headers)))
                site.answer(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self.seen: list[tuple[str, dict[str, str]]] = []
        self.dialled: list[tuple[str, int]] = []
        self.names: list[str] = []
        self.addresses = [[PUBLIC]]
        self.answer: Answer = lambda handler: reply(handler, b"content")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def resolve(self, host: Any, port: int, *rest: Any, **options: Any) -> list[Any]:
        self.names.append(host.decode() if isinstance(host, bytes) else host)
        addresses = self.addresses[min(len(self.names), len(self.addresses)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (item, port)) for item in addresses]

    async def dial(self, backend: Any, address: str, port: int, *rest: Any, **options: Any) -> Any:
        self.dialled.append((address, port))
        return await DIAL(backend, *self.server.server_address[:2], *rest, **options)


DIAL: Any = httpcore2.AnyIOBackend.connect_tcp


def reply(
    handler: http.server.BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site()
    monkeypatch.setattr(socket, "getaddrinfo", made.resolve)
    dial = lambda backend, *args, **options: made.dial(backend, *args, **options)  # noqa: E731
    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", dial)
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_file_is_fetched_from_the_address_that_was_checked(site: Site) -> None:
    assert fetch("http://example.com:8080/a.png?x=1", LIMITS) == b"content"
    assert site.names == ["example.com"]
    assert site.dialled == [(PUBLIC, 8080)]
    path, headers = site.seen[0]
    assert path == "/a.png?x=1"
    assert headers["Host"] == "example.com:8080"
    assert headers["Accept-Encoding"] == "identity"


def test_a_name_that_changes_its_address_is_resolved_once(site: Site) -> None:
    """DNS rebinding: the second answer would be this machine."""
    site.addresses = [[PUBLIC], ["127.0.0.1"]]
    assert fetch("http://rebind.example/", LIMITS) == b"content"
    assert site.dialled == [(PUBLIC, 80)]
    with pytest.raises(MediaError, match="not a public address"):
        fetch("http://rebind.example/", LIMITS)
    assert len(site.dialled) == 1


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::1"], ["169.254.169.254"], []]
)
def test_a_single_address_that_is_not_public_is_enough(site: Site, addresses: list[str]) -> None:
    site.addresses = [addresses]
    with pytest.raises(MediaError, match="not a public address") as caught:
        fetch("http://inner.example/", LIMITS)
    assert not site.dialled
    assert "10.0.0.1" not in str(caught.value)


def test_an_address_in_the_url_is_checked_as_well() -> None:
    """The system's own resolver takes numbers of any form."""
    for host in ("127.0.0.1", "localhost", "0x7f000001", "2130706433", "[::1]", "127.1"):
        with pytest.raises(MediaError, match=r"not a public address|can't be fetched"):
            fetch(f"http://{host}:9/", LIMITS)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(site: Site, status: int) -> None:
    site.answer = lambda handler: reply(handler, b"", status, Location="http://127.0.0.1/")
    with pytest.raises(MediaError, match="redirects"):
        fetch("http://example.com/", LIMITS)
    assert len(site.dialled) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda handler: reply(handler, b"", 404), "answers 404"),
        (lambda handler: reply(handler, b"x", Content_Length="5000"), "5000 bytes"),
        (lambda handler: reply(handler, b"x" * 5000), "more than 1000 bytes"),
        (lambda handler: reply(handler, b"x", Content_Encoding="gzip"), "compresses"),
        (lambda handler: handler.wfile.write(b"no http\r\n\r\n"), "can't be fetched"),
        (lambda handler: handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 99_999), "can't"),
    ],
)
def test_answers_that_are_refused(site: Site, answer: Answer, message: str) -> None:
    site.answer = answer
    with pytest.raises(MediaError, match=message):
        fetch("http://example.com/", LIMITS)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["head", "body", "nothing"])
def test_a_trickle_of_bytes_ends_with_the_time(site: Site, where: str) -> None:
    over = threading.Event()

    def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
        if where == "body":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        elif where == "head":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        try:
            while where != "nothing" and not over.wait(0.05):
                handler.wfile.write(b"x")
            over.wait(5)
        except OSError:
            pass

    site.answer = drip
    start = time.monotonic()
    with pytest.raises(MediaError, match=r"did not come within 0\.4 s"):
        fetch("http://example.com/", replace(LIMITS, media_seconds=0.4))
    assert time.monotonic() - start < 3
    over.set()


def test_tls_asks_for_the_name_and_not_the_address(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[object] = []

    async def start_tls(stream: Any, *, server_hostname: object, **options: object) -> Any:
        names.append(server_hostname)
        return stream

    monkeypatch.setattr(type(asyncio.run(_stream(site))), "start_tls", start_tls)
    assert fetch("https://example.com/a", LIMITS) == b"content"
    assert names == ["example.com"]
    assert site.dialled[-1] == (PUBLIC, 443)
    assert site.seen[0][1]["Host"] == "example.com"


async def _stream(site: Site) -> Any:
    stream = await DIAL(httpcore2.AnyIOBackend(), *site.server.server_address[:2])
    await stream.aclose()
    return stream
