"""The bytes that a URL stands for: in itself, below the media root, or on another machine; and how
large media may be.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from ...checks import option
from ...errors import SoonerError

MEBI = 1 << 20
MAX_LETTERS = 60
"""Characters of a URL that a message quotes."""


class MediaError(SoonerError):
    """A picture, video or PDF that is not read; one line for whoever sent it."""


class MediaBusyError(SoonerError):
    """All processes that decode are taken; the same media may be sent again."""


@dataclass(frozen=True)
class MediaSettings:
    """Where media of requests may come from, and what is refused of them before it is decoded.

    Args:
        media_root: folder whose files requests may name (`file:///...`); by default none.
        allow_remote_media: fetch pictures and videos that requests name by http(s).
        max_media: most pictures, videos and PDF pages of a request.
        max_media_bytes: most bytes of one picture, video or PDF.
        max_pixels: most pixels of one picture, page or frame.
        max_video_seconds: longest video.
        max_pages: most pages of one PDF.
        media_seconds: what fetching one of them may take, and decoding it.
        media_memory: bytes that a process may take to decode.
        media_workers: processes that decode.
    """

    media_root: str | None = option(None, metavar="DIR")
    allow_remote_media: bool = False
    max_media: int = option(64, 1)
    max_media_bytes: int = option(48 * MEBI, 1)
    max_pixels: int = option(40_000_000, 1)
    max_video_seconds: float = option(1800.0, 0, above=True)
    max_pages: int = option(20, 1)
    media_seconds: float = option(20.0, 0, above=True, metavar="S")
    media_memory: int = option(2048 * MEBI, 64 * MEBI)
    media_workers: int = option(2, 1)

    @property
    def max_total(self) -> int:
        """Returns the bytes that all pixels of one file may have, as RGB."""
        return self.media_memory // 4

    def check_bytes(self, size: int, what: str = "it") -> None:
        """Refuse a file of more bytes than one may have.

        Raises:
            MediaError: says how many.
        """
        if size > self.max_media_bytes:
            raise MediaError(
                f"{what} has {size} bytes; at most {self.max_media_bytes} are read, send a smaller "
                "one"
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


def from_data(url: str, limits: MediaSettings) -> bytes:
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


def from_base64(data: str, limits: MediaSettings) -> bytes:
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


def read_below(root: Path, path: str, limits: MediaSettings) -> bytes:
    """Returns a file below `root`: no `..`, no symbolic link on the way, however late it is made.

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
            content = file.read(limits.max_media_bytes + 1)
        limits.check_bytes(len(content), f"'{display_url(path)}'")
        return content
    except OSError as error:
        raise MediaError(
            f"'{display_url(path)}' can't be read below the media root: {error.strerror}; symbolic "
            "links are not followed"
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)


def path_of(url: str) -> str:
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
