"""Real video files in which each frame tells its own index, and ways to damage them."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

STEP = 6
"""Grey levels between neighbouring frames; compression blurs less than half of it."""


def level(index: int) -> int:
    return 16 + STEP * (index % 36)


def index_of(pixels: np.ndarray, near: int) -> int:
    """The index, nearest to `near`, that a decoded frame's grey stands for."""
    index = round((float(pixels.mean()) - 16) / STEP)
    return index + 36 * round((near - index) / 36)


def picture(index: int, width: int, height: int, noise: bool = False) -> np.ndarray:
    """Uniform grey that tells the index; with `noise`, hard to compress around the same mean."""
    flat = np.full((height, width, 3), level(index), np.int16)
    if noise:
        spread = np.random.default_rng(index).integers(-15, 16, (height, width, 1))
        flat = flat + spread - round(spread.mean())
    return flat.clip(0, 255).astype(np.uint8)


def write(
    path: Path,
    codec: str = "h264",
    frames: int = 30,
    size: tuple[int, int] = (64, 48),
    rate: int = 10,
    times: list[int] | None = None,
    pixel_format: str = "yuv420p",
    noise: bool = False,
    options: dict[str, str] | None = None,
) -> Path:
    """Encode a video; `times` gives presentation times in milliseconds, else `rate` does."""
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width, stream.height = size
        stream.pix_fmt = pixel_format
        if times is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(index, *size, noise), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[index], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def shift(source: Path, target: Path, frames: int) -> Path:
    """The film so many frames later; an edit list hides those that would begin before 0."""
    options = {"avoid_negative_ts": "disabled"}
    with av.open(str(source)) as old, av.open(str(target), "w", options=options) as new:
        stream = old.streams.video[0]
        copy = new.add_stream_from_template(stream)
        ticks = round(frames / stream.average_rate / stream.time_base)
        for packet in filter(lambda packet: packet.size, old.demux(stream)):
            packet.pts, packet.dts, packet.stream = packet.pts + ticks, packet.dts + ticks, copy
            new.mux(packet)
    return target


def write_sound(path: Path, codec: str = "aac") -> Path:
    """A file with sound and nothing to see."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=16000)
        for _ in range(8):
            silence = np.zeros((1, 1024), np.float32)
            frame = av.AudioFrame.from_ndarray(silence, format="fltp", layout="mono")
            frame.sample_rate = 16000
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def truncate(source: Path, target: Path, share: float) -> Path:
    """The first part of a file."""
    data = source.read_bytes()
    target.write_bytes(data[: int(len(data) * share)])
    return target


def overwrite(source: Path, target: Path, begin: float, end: float) -> Path:
    """A file in whose middle bytes were lost."""
    data = bytearray(source.read_bytes())
    first, last = int(len(data) * begin), int(len(data) * end)
    data[first:last] = bytes(last - first)
    target.write_bytes(bytes(data))
    return target


def turn(source: Path, target: Path) -> Path:
    """An mp4 whose track says: show me turned 90 degrees clockwise, as telephones write it."""
    data = bytearray(source.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 40
    unit, minus = 0x10000, 0xFFFF0000
    data[matrix : matrix + 36] = struct.pack(">9I", 0, unit, 0, minus, 0, 0, 0, 0, 0x40000000)
    target.write_bytes(bytes(data))
    return target
