"""Inspects a video file by reading its packets and decoding one frame; writes films."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Any

import av
import numpy as np
from av.stream import Disposition

from ..errors import SoonerError
from ..io import replacing

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
    times, damage = list[float](), None
    with open_video(path) as (container, stream):
        declared, promised = stream.frames, _promised_seconds(stream)
        rate = float(stream.average_rate or 25)
        if "mp4" in container.format.name:  # whose edit list has cut frames from the index
            declared = min(declared, len(stream.index_entries))
        try:
            for packet in container.demux(stream):
                if packet.is_discard:  # the edit list shows only what follows
                    declared -= 1
                elif packet.size:
                    stamp = packet.pts if packet.pts is not None else packet.dts
                    after = times[-1] + 1 / rate if times else 0.0
                    times.append(after if stamp is None else float(stamp * stream.time_base))
        except (av.error.FFmpegError, OSError):
            damage = "cut off"
    if not times:
        raise SoonerError(f"'{path}' has a video track without frames; it may be cut off")
    times.sort()
    gaps = [after - before for before, after in pairwise(times)]
    last = median_high(gaps) if gaps else 0.0
    seconds = times[-1] - times[0] + (last or 1 / rate)
    if declared > len(times) or seconds < 0.9 * promised - 0.5:
        whole = max(declared, round(len(times) * promised / seconds))
        damage = f"the file ends after {len(times)} of about {whole} frames"
    with open_video(path) as (container, stream):
        frame = next((frame for frame, _ in frames_of(container, stream)), None)
        if frame is None:
            raise SoonerError(f"'{path}': no frame decodes; the file is damaged, try another copy")
        sides = frame.width, frame.height
        width, height = sides if frame.rotation % 180 == 0 else sides[::-1]
        return VideoInfo(
            path=path, frames=len(times), fps=len(times) / seconds, seconds=seconds, width=width,
            height=height, rotation=frame.rotation, damage=damage,
        )  # fmt: skip


def _promised_seconds(stream: Any) -> float:
    """Returns how long the header says the track is; 0 where it says nothing."""
    if stream.duration:
        return float(stream.duration * stream.time_base)
    with suppress(ValueError):
        parts = stream.metadata.get("DURATION", "").split(":")  # hours, minutes, seconds
        return sum(float(part) * 60**power for power, part in enumerate(reversed(parts)))
    return 0.0


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


@contextmanager
def film(
    path: Path, fps: float = 25.0, quality: int = 23, comment: str = ""
) -> Iterator[Callable[[np.ndarray], None]]:
    """Writes a film, which has its name only once it is whole; after an error nothing is left.

    Args:
        path: of the `.mp4`.
        fps: frames a second.
        quality: H.264's constant rate factor; lower is better.
        comment: metadata of the file.

    Yields:
        What adds a frame, uint8 `[height, width, 3]` with even sides.

    Raises:
        SoonerError: the file can't be written.
    """
    with ExitStack() as stack:
        try:
            part = stack.enter_context(replacing(path))
            container = stack.enter_context(av.open(str(part), "w", format="mp4"))
        except OSError as error:
            raise SoonerError(f"'{path}' can't be written: {error.strerror}") from error
        container.metadata["comment"] = comment
        rate = Fraction(fps).limit_denominator(1000)
        stream: Any = container.add_stream("h264", rate=rate, options={"crf": str(quality)})
        stream.pix_fmt = "yuv420p"

        def add(picture: np.ndarray) -> None:
            if not stream.codec_context.is_open:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            container.mux(stream.encode(frame))

        yield add
        container.mux(stream.encode())
