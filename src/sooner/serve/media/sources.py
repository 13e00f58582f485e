"""The bytes that a URL stands for: in itself, below the media root, or on another machine; and how
large media may be.

Whoever sends a request chooses the URL, and this machine may reach what the sender can't: services
on the loopback, the cloud's metadata, the network behind. So a name is resolved once, every address
that comes out must be a public one, the connection goes to one of these, and redirects are refused.
"""

from __future__ import annotations

import base64
import binascii
import http.client
import io
import ipaddress
import os
import re
import socket
import ssl
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

from ...errors import SoonerError

MEBI = 1 << 20
MAX_LETTERS = 60
"""Characters of a URL that a message quotes."""
PORTS = {"http": 80, "https": 443}
PIECE = 1 << 16
NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that stand for IPv4 ones, private ones among them."""


class MediaError(SoonerError):
    """A picture, video or PDF that is not read; one line for whoever sent it."""


class MediaBusyError(SoonerError):
    """All processes that decode are taken; the same media may be sent again."""


@dataclass(frozen=True)
class MediaLimits:
    """What is refused before it is decoded.

    Attributes:
        max_bytes: of one file.
        max_pixels: of one picture, page or frame.
        max_total: bytes of all pixels of one file, as RGB.
        max_video_seconds: of one video.
        max_video_frames: that one video holds, whether they are looked at or not.
        max_pages: of one PDF.
        seconds: that fetching one file may take, and decoding it.
        memory: bytes that a process may take to decode.
    """

    max_bytes: int = 48 * MEBI
    max_pixels: int = 40_000_000
    max_total: int = 256 * MEBI
    max_video_seconds: float = 1800.0
    max_video_frames: int = 200_000
    max_pages: int = 20
    seconds: float = 20.0
    memory: int = 1024 * MEBI

    def check_bytes(self, size: int, what: str = "it") -> None:
        """Refuse a file of more bytes than one may have.

        Raises:
            MediaError: says how many.
        """
        if size > self.max_bytes:
            raise MediaError(
                f"{what} has {size} bytes; at most {self.max_bytes} are read, send a smaller one"
            )

    def check_size(self, width: int, height: int, count: int = 1) -> None:
        """Refuse pictures of more pixels than are decoded.

        Args:
            count: pictures of that size.

        Raises:
            MediaError: says how many.
        """
        if min(width, height) < 1:
            raise MediaError(f"it is {width} x {height} px; a picture has pixels")
        if width * height > self.max_pixels:
            raise MediaError(
                f"it is {width} x {height} px, {width * height} pixels; at most "
                f"{self.max_pixels} are decoded, send it smaller"
            )
        if 3 * width * height * count > self.max_total:
            raise MediaError(
                f"its {count} pictures of {width} x {height} px take "
                f"{3 * width * height * count} bytes; at most {self.max_total} are decoded, send "
                "it smaller"
            )


@dataclass(frozen=True)
class Sources:
    """Where media may come from.

    Args:
        limits: of their size.
        root: folder whose files may be named; `None`: none may.
        fetch: gets http(s) URLs, such as `Fetcher.get`; `None`: they are refused.
    """

    limits: MediaLimits
    root: Path | None = None
    fetch: Callable[[str], bytes] | None = None

    def read(self, url: str) -> bytes:
        """Returns the content of a `data:`, `file:` or `http(s):` URL, or of a path below the media
        root.

        Raises:
            MediaError: it is not allowed, not there, or too large.
        """
        scheme, colon, _ = url[:16].partition(":")
        scheme = scheme.lower() if colon else ""
        if scheme == "data":
            return from_data(url, self.limits)
        if scheme in ("http", "https"):
            if self.fetch is None:
                raise MediaError(
                    f"'{display_url(url)}' is on another machine, and this server fetches nothing "
                    "(--allow-remote-media); send the content as a data URI"
                )
            return self.fetch(url)
        if scheme == "file" or not colon or "/" in scheme:
            return self._file(url)
        raise MediaError(
            f"'{display_url(url)}' has the scheme '{scheme}'; use data, file, http or https"
        )

    def _file(self, url: str) -> bytes:
        if self.root is None:
            raise MediaError(
                f"'{display_url(url)}' names a file, and this server reads none (--media-root); "
                "send the "
                "content as a data URI"
            )
        return read_below(self.root, _path(url), self.limits)


def from_data(url: str, limits: MediaLimits) -> bytes:
    """The content of a data URI (RFC 2397), counted before it is decoded.

    Raises:
        MediaError: it is none, too large, or no base64.
    """
    head, comma, data = url.partition(",")
    if not comma or not head[:5].lower() == "data:":
        raise MediaError(f"'{display_url(url)}' is no data URI; write data:image/png;base64,...")
    if head.lower().endswith(";base64"):
        return from_base64(data, limits)
    limits.check_bytes(len(data), "the data URI")
    return unquote_to_bytes(data)


def from_base64(data: str, limits: MediaLimits) -> bytes:
    """Returns bytes of base64, in lines or not.

    Raises:
        MediaError: too many, or other characters.
    """
    limits.check_bytes(len(data) // 4 * 3 - data[-2:].count("="), "the data URI")
    if "%" in data:
        data = unquote(data)
    try:
        return base64.b64decode(re.sub(r"\s+", "", data), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MediaError(f"the data URI is no base64: {error}; send it again") from error


def read_below(root: Path, path: str, limits: MediaLimits) -> bytes:
    """Returns a file below `root`: no `..`, and no symbolic link on the way, not even one made
    meanwhile.

    Args:
        path: relative to `root`, or absolute and in it.

    Raises:
        MediaError: outside, not there, no ordinary file, or too large.
    """
    parts = [part for part in _relative(root, path).split("/") if part]
    if not parts or any(part in (".", "..") or "\0" in part for part in parts):
        raise MediaError(
            f"'{display_url(path)}' is no file below the media root; name one without '..'"
        )
    below = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for part in parts[:-1]:
            opened.append(os.open(part, below | os.O_DIRECTORY, dir_fd=opened[-1]))
        # A pipe would wait for its writer for ever.
        opened.append(os.open(parts[-1], below | os.O_NONBLOCK, dir_fd=opened[-1]))
        info = os.fstat(opened[-1])
        if not stat.S_ISREG(info.st_mode):
            raise MediaError(f"'{display_url(path)}' is no ordinary file; name one")
        limits.check_bytes(info.st_size, f"'{display_url(path)}'")
        with open(opened[-1], "rb", closefd=False) as file:
            content = file.read(limits.max_bytes + 1)
        limits.check_bytes(len(content), f"'{display_url(path)}'")
        return content
    except OSError as error:
        raise MediaError(
            f"'{display_url(path)}' can't be read below the media root: {error.strerror}; symbolic "
            "links "
            "are not followed"
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _path(url: str) -> str:
    """Returns the path of a `file:` URL, or the text itself."""
    if url[:5].lower() != "file:":
        return url
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise MediaError(f"'{display_url(url)}' is no URL: {error}") from error
    if parts.netloc not in ("", "localhost"):
        raise MediaError(f"'{display_url(url)}' names another machine; write file:///path")
    return unquote(parts.path)


def _relative(root: Path, path: str) -> str:
    if not path.startswith("/"):
        return path
    for base in (str(root).rstrip("/"), str(root.resolve()).rstrip("/")):
        if path.startswith(f"{base}/"):
            return path[len(base) :]
    raise MediaError(f"'{display_url(path)}' is not below the media root; name a file that is")


def display_url(url: str) -> str:
    """Returns as much of a URL as a message quotes."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in url[: MAX_LETTERS + 1])
    return clean if len(clean) <= MAX_LETTERS else clean[:MAX_LETTERS] + "…"


Resolve = Callable[[str, int], list[str]]
Dial = Callable[[str, int, float], socket.socket]


def resolve(host: str, port: int) -> list[str]:
    """Returns addresses of a name, as the system resolves it.

    Raises:
        OSError: it has none.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in addresses))


def dial(address: str, port: int, seconds: float) -> socket.socket:
    """Returns a connection to an address; never to a name."""
    return socket.create_connection((str(ipaddress.ip_address(address)), port), seconds)


def is_public(address: str) -> bool:
    """Returns whether an address belongs to the internet: not private, loopback, link-local,
    multicast, or an IPv6 form of such a one.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if ip in NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if ip.teredo is not None or ip.is_site_local:
            return False
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not (ip.is_multicast or ip.is_reserved)


@dataclass(frozen=True)
class Fetcher:
    """Gets files by http(s).

    Args:
        limits: bytes of a file, and seconds that getting it may take in all.
        resolve, dial: the network; tests have their own.
        tls: certificates that are trusted.
    """

    limits: MediaLimits
    resolve: Resolve = resolve
    dial: Dial = dial
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context, repr=False)

    def get(self, url: str) -> bytes:
        """Returns the content of a URL; blocks.

        Raises:
            MediaError: nothing is fetched from there, no status 200, too large, or too slow.
        """
        scheme, host, port, path = split(url)
        deadline = time.monotonic() + self.limits.seconds
        try:
            with self._connect(scheme, host, port, deadline) as connected:
                return self._content(scheme, host, port, path, connected)
        except MediaError:
            raise
        except TimeoutError as error:
            raise MediaError(
                f"'{display_url(url)}' did not come within {self.limits.seconds:g} s; send the "
                "content "
                "as a data URI"
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise MediaError(f"'{display_url(url)}' can't be fetched: {reason}") from error

    def _connect(self, scheme: str, host: str, port: int, deadline: float) -> _Timed:
        addresses = self.resolve(host, port)
        if not addresses or not all(is_public(address) for address in addresses):
            # Which address it was is not told: that would be a map of the network here.
            raise MediaError(
                f"'{display_url(host)}' is not a public address; nothing is fetched from it"
            )
        connected = self.dial(addresses[0], port, max(deadline - time.monotonic(), 0.001))
        if scheme == "https":
            try:
                connected.settimeout(max(deadline - time.monotonic(), 0.001))
                connected = self.tls.wrap_socket(connected, server_hostname=host)
            except BaseException:
                connected.close()
                raise
        return _Timed(connected, deadline)

    def _content(self, scheme: str, host: str, port: int, path: str, connected: _Timed) -> bytes:
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        connection = kind(host, port)
        connection.auto_open = 0  # it would dial the name
        connection.sock = connected
        headers = {"Accept-Encoding": "identity", "User-Agent": "sooner", "Connection": "close"}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        if 300 <= response.status < 400:
            raise MediaError(
                f"'{display_url(host)}' redirects, which is not followed; give the last address"
            )
        if response.status != 200:
            raise MediaError(f"'{display_url(host)}' answers {response.status}; give another URL")
        if response.getheader("Content-Encoding", "identity").lower() != "identity":
            raise MediaError(f"'{display_url(host)}' compresses what it was asked for plainly")
        if (declared := response.getheader("Content-Length", "")).isdecimal():
            self.limits.check_bytes(int(declared), f"the file of '{display_url(host)}'")
        content = bytearray()
        while piece := response.read(PIECE):
            content += piece
            if len(content) > self.limits.max_bytes:
                raise MediaError(
                    f"the file of '{display_url(host)}' has more than {self.limits.max_bytes} "
                    "bytes; "
                    "give a smaller one"
                )
        return bytes(content)


def split(url: str) -> tuple[str, str, int, str]:
    """Returns scheme, host, port, and path with query of a URL, ready to be sent.

    Raises:
        MediaError: it has no host, a user's name, or characters that no URL has.
    """
    wrong = any(ord(letter) <= 32 or letter == "\\" or ord(letter) == 127 for letter in url)
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS[parts.scheme.lower()]
        host = (parts.hostname or "").encode("idna").decode()
    except (ValueError, KeyError, UnicodeError) as error:
        raise MediaError(f"'{display_url(url)}' is no URL: {error}") from error
    if wrong or not host or "@" in parts.netloc:
        raise MediaError(f"'{display_url(url)}' is no URL of a file; write https://host/path")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    query = quote(parts.query, safe="/%:@!$&'()*+,;=~-._?[]")
    return parts.scheme.lower(), host, port, f"{path}?{query}" if query else path


class _Timed(io.RawIOBase):
    """A socket whose every operation ends by one deadline, so that no trickle of bytes goes on."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self.connected, self.deadline = connected, deadline

    def _left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline passed")
        return left

    def sendall(self, data: Any) -> None:
        self.connected.settimeout(self._left())
        self.connected.sendall(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.connected.settimeout(self._left())
        return self.connected.recv_into(buffer)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Timed(self.connected, self.deadline))

    def __enter__(self) -> _Timed:
        return self

    def __exit__(self, *error: object) -> None:
        self.connected.close()
