"""Real encoded video files of the world's clips, written and read with PyAV."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream

from . import world

AT_ONCE = 48  # frames drawn at once: a long clip never stands in memory whole


def write_video(clip: world.SceneClip, path: Path | str, codec: str = "h264") -> Path:
    """Encode a clip; the container follows from the path's suffix (.mp4, .mkv, .webm, ...).

    Args:
        codec: a PyAV encoder, such as "h264", "mpeg4", "libvpx-vp9".

    Returns:
        `path`.

    Raises:
        ValueError: an encoder that this build of PyAV does not have.
    """
    path = Path(path)
    if codec not in av.codecs_available:
        raise ValueError(f"this PyAV has no codec {codec!r}; 'h264' and 'mpeg4' are usual ones")
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=world.FPS)
        assert isinstance(stream, VideoStream)  # what a video codec gives
        stream.width = stream.height = world.SIDE
        stream.pix_fmt = "yuv420p"
        for begin in range(0, clip.total_frames, AT_ONCE):
            some = range(begin, min(begin + AT_ONCE, clip.total_frames))
            for picture in world.render(clip, some):
                frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def read_video(path: Path | str) -> np.ndarray:
    """Every frame of a file: uint8 `[frames, height, width, 3]`, RGB."""
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
