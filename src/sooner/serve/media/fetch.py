"""Files of other machines by http(s): the address that was checked is the one that is dialled.

Whoever sends a request chooses the URL, and this machine may reach what the sender can't: services
on the loopback, the cloud's metadata, the network behind. So a name is resolved once, every address
that comes out must be a public one, the connection goes to one of these, and redirects are refused.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from .sources import MediaError, MediaLimits, display_url

PORTS = {"http": 80, "https": 443}
PIECE = 1 << 16
NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that stand for IPv4 ones, private ones among them."""

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
