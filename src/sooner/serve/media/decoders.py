"""Pixels of pictures, videos and PDFs; each function runs in a process that may be killed.

A decoder is called with a `DecodeTask`. It sends the pictures that it makes one by one, may ask the
server a question in between, and returns what else there is to tell, as JSON has it.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ...documents.page import Resolution
from ...documents.pages import as_rgb
from ...documents.pdf import PASSWORD, draw_page, init_forms
from ...errors import SoonerError, reason_of
from ...tasks.frames import read
from ...tasks.video import VideoBytes, VideoInfo, open_video, probe
from .processes import DecodeTask
from .sources import MediaError, MediaSettings

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
"""What Pillow may try. It knows forty others, and hands some of them (EPS) to another program."""
MAX_FRAMES = 200_000
"""Frames of a video at most, whether they are looked at or not."""


def picture(task: DecodeTask) -> dict[str, Any]:
    """One picture `[height, width, 3]`, turned as its EXIF says, on white where it is transparent.

    Of several in a file (GIF, TIFF) it is the first.

    Raises:
        MediaError: no picture, damaged, or too large.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(task.data), formats=FORMATS)
        with opened:
            task.limits.check_size(*opened.size)
            turned = ImageOps.exif_transpose(opened)
            task.limits.check_size(*turned.size)
            task.send(np.array(as_rgb(turned)))
    except (MediaError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise MediaError(
            f"its {len(task.data)} bytes are none of {', '.join(FORMATS)}; send one of them"
        ) from None
    except Image.DecompressionBombError as error:
        raise MediaError(f"it has too many pixels ({error}); send it smaller") from error
    except Exception as error:
        # Decoders meet broken files with errors of many kinds (struct.error, EOFError, KeyError).
        raise MediaError(f"it is damaged ({reason_of(error)}); send it again") from error
    return {}


def video(task: DecodeTask) -> dict[str, Any]:
    """Returns the frames `[frames, height, width, 3]` of a video that the server wants.

    It is asked `{"choose": info}` and answers `{"indices": [...]}`; see `sooner.tasks.frames.read`.

    Raises:
        MediaError: no video, damaged, too long, or too large.
    """
    limits = task.limits
    source = VideoBytes(task.data, max_pixels=limits.max_pixels)
    try:
        with open_video(source) as (container, stream):
            limits.check_size(stream.codec_context.width, stream.codec_context.height)
            check_length(limits, (container.duration or 0) / 1e6, stream.frames)
        info = probe(source)
        check_length(limits, info.seconds, info.frames)

        def choose(available: VideoInfo) -> list[int]:
            indices = task.ask({"choose": info_fields(available)})["indices"]
            limits.check_size(available.width, available.height, len(indices))
            return [int(index) for index in indices]

        frames = read(info, choose)
    except MediaError:
        raise
    except SoonerError as error:
        raise MediaError(str(error).replace("'video' ", "it ").replace("'video'", "it")) from error
    task.send(frames.pixels)
    return {"info": info_fields(frames.info), "indices": frames.indices}


def info_fields(info: VideoInfo) -> dict[str, Any]:
    """Returns a video's properties for JSON; `VideoInfo(path, **fields)` is the way back."""
    return {name: value for name, value in vars(info).items() if name != "path"}


def check_length(limits: MediaSettings, seconds: float, frames: int) -> None:
    """Refuse a video that is too long.

    Raises:
        MediaError: says by how much.
    """
    if seconds > limits.max_video_seconds:
        raise MediaError(
            f"it is {seconds:.0f} s long; at most {limits.max_video_seconds:g} s are read, cut it"
        )
    if frames > MAX_FRAMES:
        raise MediaError(f"it has {frames} frames; at most {MAX_FRAMES} are read, cut it")


def pages(task: DecodeTask) -> dict[str, Any]:
    """Returns the pages of a PDF, each `[height, width, 3]`, upright as its rotation says.

    Options: `dpi`, or `within`, the width and height that a page shall just fit into.

    Raises:
        MediaError: no PDF, encrypted, damaged, too many pages or too large ones.
        ImportError: PDFium is not installed.
    """
    import pypdfium2

    if b"%PDF" not in task.data[:1024]:
        raise MediaError("it is no PDF; send one, and pictures as image_url")
    resolution = Resolution(**task.options)
    try:
        document = pypdfium2.PdfDocument(task.data)
        init_forms(pypdfium2, document)
    except pypdfium2.PdfiumError as error:
        is_locked = getattr(error, "err_code", None) == PASSWORD
        problem = "is encrypted; send it without its password" if is_locked else "is damaged"
        raise MediaError(f"the PDF {problem}") from error
    count = len(document)
    if not 1 <= count <= task.limits.max_pages:
        raise MediaError(
            f"the PDF has {count} pages; 1 to {task.limits.max_pages} are read, send a part of it"
        )
    total = 0
    for number in range(count):
        try:
            page = document[number]
            scale = resolution.of_pdf(*page.get_size())
            task.limits.check_size(*(round(side * scale) for side in page.get_size()))
            picture, _ = draw_page(page, resolution)
            page.close()
        except MediaError:
            raise
        except SoonerError as error:
            raise MediaError(f"page {number + 1} {error}") from error
        except (pypdfium2.PdfiumError, ValueError, OSError) as error:
            raise MediaError(f"page {number + 1} is damaged ({reason_of(error)})") from error
        total += picture.nbytes
        if total > task.limits.max_total:
            raise MediaError(
                f"the PDF's pages take more than {task.limits.max_total} bytes; send fewer"
            )
        task.send(picture)
    return {}
