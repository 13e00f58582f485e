"""Real files, whole, broken and hostile, through the processes that decode."""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sooner.serve.media.decoders import check_length
from sooner.serve.media.processes import DecodeProcesses
from sooner.serve.media.sources import MEBI, MediaError, MediaSettings
from tasks import videos

LIMITS = MediaSettings(
    max_media_bytes=4 * MEBI, max_pixels=1_000_000, max_video_seconds=60, max_pages=3,
    media_seconds=10, media_memory=256 * MEBI, media_workers=1,
)  # fmt: skip
PLANTED = "planted_decoders"


@pytest.fixture(scope="module")
def processes() -> Iterator[DecodeProcesses]:
    made = DecodeProcesses(LIMITS)
    yield made
    made.close()


def png(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def decode_picture(processes: DecodeProcesses, data: bytes) -> np.ndarray:
    (pixels,) = processes.decode("picture", data).pictures
    return pixels


def gradient(mode: str) -> Image.Image:
    grey = Image.fromarray(np.tile(np.arange(0, 240, 8, dtype=np.uint8), (20, 1)))
    if mode in ("RGBA", "LA", "PA"):
        made = grey.convert("RGB" if mode != "LA" else "L")
        made.putalpha(Image.fromarray(np.full((20, 30), 255, np.uint8)))
        return made
    if mode == "I;16":
        return Image.fromarray(np.asarray(grey, np.uint16) * 257)
    return grey.convert(mode)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_pngs_of_every_mode_become_rgb(processes: DecodeProcesses, mode: str) -> None:
    pixels = decode_picture(processes, png(gradient(mode)))
    assert pixels.shape == (20, 30, 3)
    assert pixels.dtype == np.uint8
    assert pixels[0, -1].astype(int).tolist() == pytest.approx(
        [255] * 3 if mode == "1" else [232] * 3, abs=3
    )


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "BMP", "TIFF"])
def test_other_formats_are_read_and_of_several_frames_the_first(
    processes: DecodeProcesses, kind: str
) -> None:
    frames = [Image.new("RGB", (16, 12), colour) for colour in ("red", "blue")]
    options = {"save_all": True, "append_images": frames[1:]} if kind in ("GIF", "TIFF") else {}
    pixels = decode_picture(processes, png(frames[0], kind, **options))
    assert pixels.shape == (12, 16, 3)
    assert pixels[5, 5, 0] > 240
    assert pixels[5, 5, 2] < 15


def claim(width: int, height: int, body: bytes = b"") -> bytes:
    """A PNG whose header says any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [1001, 50_000])
def test_a_decompression_bomb_is_refused_by_its_header(
    processes: DecodeProcesses, side: int
) -> None:
    zeros = zlib.compress(bytes(64 * MEBI), 9)
    with pytest.raises(MediaError, match=rf"{side * side} pixels"):
        processes.decode("picture", claim(side, side, zeros))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes are none of"),
        (b"no picture at all", "none of PNG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "none of PNG"),
        (png(Image.new("RGB", (64, 64), "red"))[:60], "damaged"),
        (claim(0, 5), "none of|px|damaged"),
    ],
)
def test_what_is_no_picture_is_refused(
    processes: DecodeProcesses, data: bytes, message: str
) -> None:
    with pytest.raises(MediaError, match=message):
        processes.decode("picture", data)


def every(info: dict[str, Any]) -> dict[str, Any]:
    return {"indices": list(range(info["choose"]["frames"]))}


def test_the_requested_frames_come(processes: DecodeProcesses, tmp_path: Path) -> None:
    data = videos.write(tmp_path / "a.mp4", frames=20).read_bytes()
    choices: list[dict[str, Any]] = []

    def some(question: dict[str, Any]) -> dict[str, Any]:
        choices.append(question["choose"])
        return {"indices": [0, 7, 19]}

    decoded = processes.decode("video", data, some)
    assert choices[0]["frames"] == 20
    assert choices[0]["width"] == 64
    (pixels,) = decoded.pictures
    assert [videos.index_of(frame, near) for frame, near in zip(pixels, (0, 7, 19), strict=True)] \
        == [0, 7, 19]  # fmt: skip
    assert decoded.report["indices"] == [0, 7, 19]
    assert decoded.report["info"]["damage"] is None


SECRET = "sooner-secret-file"


@pytest.mark.parametrize(
    "text",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{path}\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nhttp://127.0.0.1:9/x.ts\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{path}'\n",
        '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"><Period>'
        "<BaseURL>{path}</BaseURL></Period></MPD>",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n",
    ],
)
def test_playlists_read_no_file_and_no_address(
    processes: DecodeProcesses, tmp_path: Path, text: str
) -> None:
    """Each names a video that is there, and would be read."""
    path = videos.write(tmp_path / f"{SECRET}.ts", frames=8)
    with pytest.raises(MediaError, match="it is not a video") as caught:
        processes.decode("video", text.format(path=path).encode(), every)
    assert SECRET not in str(caught.value)


def test_a_long_video_is_refused_before_a_frame_is_decoded(
    processes: DecodeProcesses, tmp_path: Path
) -> None:
    times = [0, 1000, 90_000]
    data = videos.write(tmp_path / "a.mkv", "mpeg4", 3, times=times, rate=25).read_bytes()
    with pytest.raises(MediaError, match=r"it is 9.? s long; at most 60 s"):
        processes.decode("video", data, every)
    with pytest.raises(MediaError, match="has 200001 frames; at most 200000"):
        check_length(LIMITS, 1.0, 200_001)


def test_large_frames_and_many_of_them_are_refused(
    processes: DecodeProcesses, tmp_path: Path
) -> None:
    wide = videos.write(tmp_path / "a.mp4", frames=2, size=(1280, 1024)).read_bytes()
    with pytest.raises(MediaError, match="1280 x 1024 px, 1310720 pixels; at most 1000000"):
        processes.decode("video", wide, every)
    many = videos.write(tmp_path / "b.mp4", frames=80, size=(640, 480)).read_bytes()
    with pytest.raises(MediaError, match="80 pictures of 640 x 480 px take 73728000 bytes"):
        processes.decode("video", many, every)


def pdf(pages: int, claim: int | None = None, media: str = "[0 0 144 72]") -> bytes:
    """A PDF with so many pages, or one that only says so."""
    kids = " ".join(f"{number + 3} 0 R" for number in range(pages))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>",
               f"<< /Type /Pages /Kids [{kids}] /Count {claim or pages} >>"]  # fmt: skip
    objects += [f"<< /Type /Page /Parent 2 0 R /MediaBox {media} >>"] * pages
    text = b"%PDF-1.4\n"
    places = []
    for number, entry in enumerate(objects, start=1):
        places.append(len(text))
        text += f"{number} 0 obj\n{entry}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return text + f"{end}startxref\n{len(text)}\n%%EOF\n".encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pdf(10_000), "has 10000 pages; 1 to 3 are read"),
        (pdf(1, claim=10_000), "has 10000 pages|damaged"),
        (pdf(1, media="[0 0 99999 99999]"), r"px, \d+ pixels; at most|side"),
        (pdf(0), "damaged|0 pages"),
        (b"%PDF-1.4 and nothing else", "damaged"),
        (b"<html>", "no PDF"),
    ],
)
def test_pdfs_that_are_refused(processes: DecodeProcesses, data: bytes, message: str) -> None:
    pytest.importorskip("pypdfium2")
    with pytest.raises(MediaError, match=message):
        processes.decode("pages", data)


@pytest.mark.slow
def test_a_decoder_that_hangs_is_killed_and_the_next_file_is_read() -> None:
    processes = DecodeProcesses(LIMITS)
    try:
        pid = processes.decode(f"{PLANTED}:report", b"", path="/dev/null").report["pid"]
        for name in ("hang", "hang_in_a_picture"):
            processes.limits = replace(LIMITS, media_seconds=0.5)
            with pytest.raises(MediaError, match=r"took more than 0\.5 s"):
                processes.decode(f"{PLANTED}:{name}", b"")
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            processes.limits = LIMITS
            pid = processes.decode(f"{PLANTED}:report", b"", path="/dev/null").report["pid"]
        assert decode_picture(processes, png(gradient("RGB"))).shape == (20, 30, 3)
    finally:
        processes.close()


def test_a_crash_and_hunger_are_that_files_errors(processes: DecodeProcesses) -> None:
    for _ in range(2):
        with pytest.raises(MediaError, match="ended while it read it"):
            processes.decode(f"{PLANTED}:crash", b"")
    with pytest.raises(MediaError, match="more than 256 MiB"):
        processes.decode(f"{PLANTED}:eat", b"", size=400 * MEBI)
    assert processes.decode(f"{PLANTED}:eat", b"", size=MEBI).report == {"took": MEBI}
    with pytest.raises(MediaError, match="ended while it read it"):
        processes.decode(f"{PLANTED}:flood", b"")
    assert processes.decode(f"{PLANTED}:eat", b"", size=MEBI).report == {"took": MEBI}


def test_a_process_is_reused_knows_no_secrets_and_writes_nothing(
    processes: DecodeProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOONER_TOKEN", "secret")
    fresh = DecodeProcesses(LIMITS)
    try:
        reports = [
            fresh.decode(f"{PLANTED}:report", b"", path=str(tmp_path / "x")).report for _ in "ab"
        ]
    finally:
        fresh.close()
    assert reports[0]["pid"] == reports[1]["pid"] != os.getpid()
    assert "SOONER_TOKEN" not in reports[0]["environment"]
    assert not reports[0]["wrote"]


def test_exif_turns_a_picture(processes: DecodeProcesses) -> None:
    image = Image.new("RGB", (40, 20), "blue")
    exif = image.getexif()
    exif[0x0112] = 6
    assert decode_picture(processes, png(image, "JPEG", exif=exif)).shape == (40, 20, 3)


def test_a_tiny_gif_with_a_huge_frame_is_refused(processes: DecodeProcesses) -> None:
    """The screen is 1 x 1, and the picture on it claims 65,535 x 65,535."""
    screen = b"GIF89a" + struct.pack("<HHBBB", 1, 1, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, 65_535, 65_535, 0) + b"\x02\x02D\x01\x00;"
    with pytest.raises(MediaError, match="pixels"):
        processes.decode("picture", screen + frame)
