"""How large media may be, and the error for those that are refused."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import SoonerError

MEBI = 1 << 20


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
