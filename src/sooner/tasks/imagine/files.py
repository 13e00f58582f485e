"""The files of a job: clips of a folder; pictures and clips written atomically, with the settings
of the run as metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ... import __version__
from ...errors import SoonerError
from ...io import check_writable, replacing
from ..identity import find
from ..video import film

METADATA = ("prompt", "file", "seed", "picture", "count", "model", "method", "jacobi_window",
        "coupling", "nfe", "mode", "sampling", "notes")  # fmt: skip
"""Entries of a record that go into a file's metadata."""

SMALLEST = 160
"""Clips whose height is below this are enlarged by whole numbers: chroma subsampling would blur
their colours, and they would be too small to look at."""

QUALITY = 14


def load_clips(root: Path, limit: int | None = None, apart: Path | None = None) -> list[Path]:
    """Returns the videos of a folder.

    Args:
        limit: at most so many.
        apart: a folder whose videos don't count, since results go there.

    Raises:
        SoonerError: nothing there.
    """
    paths = find([root])
    if apart is not None:
        outside = apart.resolve()
        paths = [path for path in paths if not path.resolve().is_relative_to(outside)]
    return paths[:limit]


def check_target(path: Path, suffix: str, overwrite: bool) -> None:
    """Refuse, before any work, a file that could not be written afterwards.

    Raises:
        SoonerError: another ending, a folder that can't be written, or a file that is there.
    """
    if path.suffix.lower() != suffix:
        raise SoonerError(f"output '{path}' must end in {suffix}; it holds its seed and settings")
    if path.exists() and (path.is_dir() or not overwrite):
        raise SoonerError(f"output '{path}' is there already; use --overwrite or another -o")
    check_writable(path, "-o")


def metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns metadata of a file; equal settings give equal metadata."""
    fields = {name: record[name] for name in METADATA if record.get(name) not in (None, [])}
    if "file" in fields:
        fields["file"] = Path(fields["file"]).name  # its folder may hold private names
    return {**fields, "sooner": __version__}


def write_png(path: Path, pixels: np.ndarray, record: Mapping[str, Any]) -> None:
    """Write `[height, width, 3]` uint8 with the record's metadata as text chunks."""
    info = PngInfo()
    for name, value in metadata(record).items():
        text = value if isinstance(value, str) else json.dumps(value)
        info.add_itxt(name, text) if not text.isascii() else info.add_text(name, text)
    try:
        with replacing(path) as part:
            Image.fromarray(pixels).save(part, format="PNG", pnginfo=info)
    except OSError as error:
        raise SoonerError(f"output '{path}' can't be written: {error.strerror}") from error


def write_mp4(path: Path, frames: np.ndarray, fps: float, record: Mapping[str, Any]) -> None:
    """Write `[frames, height, width, 3]` uint8 as H.264, metadata as JSON in its comment."""
    height, width = frames.shape[1:3]
    times = max(1, -(-SMALLEST // height)) if height < SMALLEST else 1
    large = frames.repeat(times, axis=1).repeat(times, axis=2)
    large = large[:, : height * times // 2 * 2, : width * times // 2 * 2]  # 4:2:0 wants even sides
    with film(path, fps, QUALITY, json.dumps(metadata(record))) as add:
        for picture in large:
            add(picture)
