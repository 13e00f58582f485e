"""Real encoded video files of the world's clips, written and read with PyAV."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream

from sooner.errors import SoonerError
from sooner.io import write_json

from . import world

# Pixels of a file along each side of a pixel of the world: chroma subsampling would otherwise
# blur colours over half a token, and people would need a magnifying glass.
ENLARGE = 4
CRF = "12"  # H.264's rate factor: at usual ones the wall's texture goes


def write_video(
    frames: np.ndarray, path: Path | str, *, enlarge: int = ENLARGE, fps: int = world.FPS
) -> Path:
    """Encode uint8 frames [frames, H, W, 3] as H.264; the suffix names the container."""
    path = Path(path)
    large = frames.repeat(enlarge, axis=1).repeat(enlarge, axis=2)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("h264", rate=fps, options={"crf": CRF})
        assert isinstance(stream, VideoStream)  # what a video codec gives
        stream.height, stream.width = large.shape[1:3]
        stream.pix_fmt = "yuv420p"
        for picture in large:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def read_video(path: Path | str, frames: int | None = None) -> np.ndarray:
    """The first `frames` frames (None is all), at the world's size.

    Returns:
        uint8 `[frames, HEIGHT, WIDTH, 3]`, RGB: means over equal boxes of the file's pixels.

    Raises:
        SoonerError: a file whose size is no multiple of the world's, or that is too short.
    """
    taken: list[np.ndarray] = []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            if frames is not None and len(taken) == frames:
                break
            taken.append(_shrink(frame.to_ndarray(format="rgb24"), path))
    if len(taken) < (frames or 1):
        raise SoonerError(
            f"'{path}' has {len(taken)} frames: give a video of {frames or 1} or more"
        )
    return np.stack(taken)


def write_sample(path: Path | str, seed: int, index: int = 0) -> Path:
    """Film a clip, all 33 frames, and write what is in it beside it (`.json`)."""
    clip, frames = world.film(seed, index)
    path = write_video(frames, path)
    told = {
        "seed": seed,
        "index": index,
        "clip": dataclasses.asdict(clip),
        "given": world.GIVEN,
        "given_end": clip.truth(world.GIVEN - 1),
        "end": clip.truth(),
    }
    write_json(told, path.with_suffix(".json"))
    return path


def _shrink(picture: np.ndarray, path: Path | str) -> np.ndarray:
    height, width = picture.shape[:2]
    times = height // world.HEIGHT
    if times < 1 or (height, width) != (times * world.HEIGHT, times * world.WIDTH):
        raise SoonerError(
            f"'{path}' has frames of {height} x {width} pixels: "
            f"give {world.HEIGHT} x {world.WIDTH}, or a multiple of it"
        )
    boxes = picture.reshape(world.HEIGHT, times, world.WIDTH, times, 3).astype(np.float32)
    return (boxes.mean((1, 3)) + 0.5).astype(np.uint8)
