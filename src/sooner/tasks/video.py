"""Inspects a video file by reading its packets and decoding one frame; writes films."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from av.video.stream import VideoStream

from ..errors import SoonerError
from ..io import part_of

TEXT_AS_FILM = "tty"
"""The demuxer with which FFmpeg renders any text as a film of a terminal; that is no video."""


DEMUXERS = (
    "mov", "mp4", "matroska", "webm", "avi", "mpegts", "mpeg", "flv", "ogg", "asf",
)  # fmt: skip
"""Containers that hold their pictures themselves. Playlists (HLS, DASH, concat) name other files
and addresses, which a stranger could have opened; and each demuxer more is one more to attack."""


@dataclass(frozen=True)
class VideoBytes:
    """A video in memory, of somebody who is not trusted.

    FFmpeg gets the bytes alone: no file, no address, and only the demuxers of `DEMUXERS`.

    Attributes:
        data: the file's content.
        name: what messages call it.
        max_pixels: of a frame; decoders refuse larger ones before they take memory.
        threads: of the decoder.
    """

    data: bytes = field(repr=False)
    name: str = "video"
    max_pixels: int | None = None
    threads: int = 1

    def __str__(self) -> str:
        return self.name

    def open(self) -> Any:
        """Returns PyAV's container.

        Raises:
            av.error.FFmpegError: none of `DEMUXERS` knows it, or it is damaged.
        """
        allowed = {"format_whitelist": ",".join(DEMUXERS), "protocol_whitelist": "none"}
        container = av.open(io.BytesIO(self.data), options=allowed, io_open=_nothing_else)
        for stream in container.streams.video:
            if stream.codec_context is not None:
                stream.codec_context.thread_count = self.threads
                if self.max_pixels is not None:
                    stream.codec_context.options = {"max_pixels": str(self.max_pixels)}
        return container


def _nothing_else(url: str, flags: int, options: Any) -> Any:
    raise PermissionError(f"a video that names '{url[:80]}' is not read")


@dataclass(frozen=True)
class VideoInfo:
    """The properties that a video has.

    Attributes:
        path: the file, or its bytes.
        frames: video frames, counted packet by packet, since headers lie or say nothing.
        fps: mean frames a second.
        seconds: from the first frame's beginning to the last one's end.
        width, height: pixels as shown, rotation applied.
        rotation: degrees counter-clockwise by which stored frames are turned to be shown.
        damage: what is wrong with the file, in words; `None` if nothing was seen.
    """

    path: Path | VideoBytes
    frames: int
    fps: float
    seconds: float
    width: int
    height: int
    rotation: int = 0
    damage: str | None = None


def probe(path: Path | str | VideoBytes) -> VideoInfo:
    """Look into a file without decoding more than its first frame.

    Raises:
        SoonerError: not there, not a video, audio only, or no frame that decodes.
    """
    path = Path(path) if isinstance(path, str) else path
    with open_video(path) as (container, stream):
        times, broken = _packet_times(container, stream)
        declared, promised = stream.frames, _promised_seconds(stream)
        rate = float(stream.average_rate or 0)
    if not times:
        raise SoonerError(f"'{path}' has a video track without frames; it may be cut off")
    seconds = _duration(times, rate)
    width, height, rotation = _first_frame(path)
    short = declared > len(times) or bool(promised and seconds < 0.9 * promised - 0.5)
    damage = "cut off" if broken else None
    if short:
        whole = max(declared, round(len(times) * (promised or 0) / seconds))
        damage = f"the file ends after {len(times)} of about {whole} frames"
    return VideoInfo(
        path=path,
        frames=len(times),
        fps=len(times) / seconds,
        seconds=seconds,
        width=width,
        height=height,
        rotation=rotation,
        damage=damage,
    )


@contextmanager
def open_video(path: Path | VideoBytes) -> Iterator[tuple[Any, Any]]:
    """Open a file and its first real video track: `(container, stream)`.

    Raises:
        SoonerError: one line about the file.
    """
    if isinstance(path, Path) and not path.is_file():
        kind = "is not a file" if path.exists() else "does not exist"
        raise SoonerError(f"'{path}' {kind}; check the path")
    try:
        container = path.open() if isinstance(path, VideoBytes) else av.open(str(path))
    except (av.error.FFmpegError, OSError, UnicodeError) as error:
        raise _unreadable(path, error) from error
    with container:
        if container.format.name == TEXT_AS_FILM:
            raise SoonerError(f"'{path}' is text, not a video")
        # Sound files carry their cover as a video track of one picture.
        streams = [
            stream
            for stream in container.streams.video
            if not stream.disposition & Disposition.attached_pic
        ]
        if not streams:
            reason = "only sound" if container.streams.audio else "no video track"
            raise SoonerError(f"'{path}' has {reason}; a video with pictures is needed")
        if streams[0].codec_context is None:
            raise SoonerError(
                f"'{path}' uses a video codec that this PyAV can't decode; convert it to H.264"
            )
        if isinstance(path, Path):
            streams[0].thread_type = "AUTO"
        yield container, streams[0]


def _unreadable(path: Path | VideoBytes, error: Exception) -> SoonerError:
    if isinstance(error, PermissionError):
        return SoonerError(f"'{path}' can't be read: permission denied")
    size = len(path.data) if isinstance(path, VideoBytes) else path.stat().st_size
    if size == 0:
        return SoonerError(f"'{path}' is empty; it holds no video")
    return SoonerError(
        f"'{path}' is not a video, or its beginning or index is missing "
        f"({getattr(error, 'strerror', None) or error}); try another copy"
    )


def _packet_times(container: Any, stream: Any) -> tuple[list[float], bool]:
    """Presentation times in seconds, sorted, and whether reading broke off."""
    times: list[float] = []
    try:
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                stamp = packet.pts if packet.pts is not None else packet.dts
                times.append(float(stamp * stream.time_base) if stamp is not None else len(times))
    except (av.error.FFmpegError, OSError):
        return sorted(times), True
    return sorted(times), False


def _promised_seconds(stream: Any) -> float | None:
    """Returns how long the header says the track is."""
    if stream.duration:
        return float(stream.duration * stream.time_base)
    hours, _, rest = stream.metadata.get("DURATION", "").partition(":")
    minutes, _, seconds = rest.partition(":")
    try:
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        return None


def _duration(times: list[float], rate: float) -> float:
    """Returns seconds that the frames span, the last one included."""
    gaps = [after - before for before, after in pairwise(times)]
    usual = sorted(gaps)[len(gaps) // 2] if gaps else 0.0
    last = usual or (1 / rate if rate else 1 / 25)
    return times[-1] - times[0] + last


def _first_frame(path: Path | VideoBytes) -> tuple[int, int, int]:
    """Shown width and height, and rotation."""
    with open_video(path) as (container, stream):
        for frame, _ in frames_of(container, stream):
            turned = frame.rotation % 180 != 0
            size = (frame.height, frame.width) if turned else (frame.width, frame.height)
            return *size, frame.rotation
    raise SoonerError(f"'{path}': no frame decodes; the file is damaged, try another copy")


def frames_of(container: Any, stream: Any) -> Iterator[tuple[Any, int]]:
    """Yields decoded frames in order, each with the number of packets that failed so far.

    A damaged packet is skipped; a file that breaks off ends the frames.
    """
    failed = 0
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except (StopIteration, av.error.FFmpegError, OSError):
            return
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            failed += 1
            continue
        for frame in frames:
            yield frame, failed


class Film:
    """A film that is being written; it has its name only once it is whole.

    Args:
        path: of the `.mp4`.
        fps: frames a second.
        quality: H.264's constant rate factor; lower is better.
        comment: metadata of the file.

    Raises:
        SoonerError: the file can't be written.
    """

    def __init__(self, path: Path, fps: float = 25.0, quality: int = 23, comment: str = "") -> None:
        self.path = path
        self._part = part_of(path)
        self._rate, self._quality = Fraction(fps).limit_denominator(1000), str(quality)
        self._stream: Any = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._container = av.open(str(self._part), "w", format="mp4")
            self._container.metadata["comment"] = comment
        except OSError as error:
            raise SoonerError(f"'{path}' can't be written: {error.strerror}") from error

    def add(self, picture: np.ndarray) -> None:
        """Add a frame, uint8 `[height, width, 3]` with even sides."""
        if self._stream is None:
            stream = self._container.add_stream(
                "h264", rate=self._rate, options={"crf": self._quality}
            )
            assert isinstance(stream, VideoStream)  # what a video codec gives
            stream.height, stream.width = picture.shape[:2]
            stream.pix_fmt = "yuv420p"
            self._stream = stream
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
        self._container.mux(self._stream.encode(frame))

    def close(self) -> Path:
        """Finish the film and give it its name."""
        if self._stream is not None:
            self._container.mux(self._stream.encode())
        self._container.close()
        os.replace(self._part, self.path)
        return self.path

    def drop(self) -> None:
        """Delete the unfinished file."""
        self._container.close()
        self._part.unlink(missing_ok=True)
