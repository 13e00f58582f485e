"""Media on other machines, by http(s).

Whoever sends a request chooses the URL, and this machine may reach what the sender can't: services
on the loopback, the cloud's metadata, the network behind. So a name is resolved once, every address
that comes out must be a public one, the connection goes to one of these, and redirects are refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from typing import Any

import httpcore2
import httpx2

from .sources import MediaError, MediaSettings, display_url

HOST = re.compile(rb"[A-Za-z0-9_.:-]+")
"""Hosts as they are looked up, internationalised names encoded."""
NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that stand for IPv4 ones, private ones among them."""
HEADERS = {"Accept-Encoding": "identity", "User-Agent": "sooner", "Connection": "close"}


def fetch(url: str, limits: MediaSettings) -> bytes:
    """Returns the content of a URL; blocks.

    Raises:
        MediaError: nothing is fetched from there, no status 200, too large, or too slow.
    """
    try:
        return asyncio.run(_content(url, limits))
    except TimeoutError as error:
        raise MediaError(
            f"'{display_url(url)}' did not come within {limits.media_seconds:g} s; send the "
            "content as a data URI"
        ) from error
    except (OSError, httpcore2.NetworkError, httpcore2.ProtocolError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise MediaError(f"'{display_url(url)}' can't be fetched: {reason}") from error


async def _content(url: str, limits: MediaSettings) -> bytes:
    parts = parse(url)
    site = display_url(parts.host)
    async with (
        asyncio.timeout(limits.media_seconds),  # of all, so that no trickle of bytes goes on
        httpcore2.AsyncConnectionPool(network_backend=PublicNetwork()) as pool,
        pool.stream("GET", str(parts), headers=[*HEADERS.items()]) as response,
    ):
        if 300 <= response.status < 400:
            raise MediaError(f"'{site}' redirects, which is not followed; give the last address")
        if response.status != 200:
            raise MediaError(f"'{site}' answers {response.status}; give another URL")
        answered = httpx2.Headers(response.headers)
        if answered.get("Content-Encoding", "identity").lower() != "identity":
            raise MediaError(f"'{site}' compresses what it was asked for plainly")
        if (declared := answered.get("Content-Length", "")).isdecimal():
            limits.check_bytes(int(declared), f"the file of '{site}'")
        content = bytearray()
        async for piece in response.aiter_stream():
            content += piece
            if len(content) > limits.max_media_bytes:
                raise MediaError(
                    f"the file of '{site}' has more than {limits.max_media_bytes} bytes; give a "
                    "smaller one"
                )
        return bytes(content)


def parse(url: str) -> httpx2.URL:
    """Returns a URL, checked.

    Raises:
        MediaError: it has no host, a user's name, or characters that no URL has.
    """
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise MediaError(f"'{display_url(url)}' is no URL: {error}") from error
    is_port = parts.port is None or 0 < parts.port < 1 << 16
    if parts.userinfo or not is_port or not HOST.fullmatch(parts.raw_host):
        raise MediaError(f"'{display_url(url)}' is no URL of a file; write https://host/path")
    return parts


class PublicNetwork(httpcore2.AnyIOBackend):
    """Connects to public addresses alone."""

    async def connect_tcp(self, host: str, port: int, *rest: Any, **options: Any) -> Any:
        """Returns a connection to the first address of a host.

        Raises:
            MediaError: one of its addresses is not public. Which one is not told: that would be a
                map of the network here.
        """
        lookup = asyncio.get_running_loop().getaddrinfo
        entries = await lookup(host, port, type=socket.SOCK_STREAM)
        addresses = [str(entry[4][0]) for entry in entries]
        if not addresses or not all(map(is_public, addresses)):
            raise MediaError(
                f"'{display_url(host)}' is not a public address; nothing is fetched from it"
            )
        return await super().connect_tcp(addresses[0], port, *rest, **options)


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
