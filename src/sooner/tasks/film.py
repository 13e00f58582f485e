"""Films: frames to H.264 in an `.mp4`."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.stream import VideoStream

from ..errors import SoonerError
from ..io import part_of


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
