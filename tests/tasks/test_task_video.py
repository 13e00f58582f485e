"""Real files: what is in them, the right frames out of them, and one line where that fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sooner.errors import SoonerError
from sooner.tasks import frames
from sooner.tasks import identity as files
from sooner.tasks.video import probe
from tasks import videos

CONTAINERS = {
    "a.mp4": ("h264", "yuv420p"),
    "a.webm": ("libvpx-vp9", "yuv420p"),
    "a.mkv": ("mpeg4", "yuv420p"),
    "a.avi": ("mjpeg", "yuvj420p"),
    "a.mov": ("mpeg4", "yuv420p"),
    "a.ts": ("h264", "yuv420p"),
    "a.h264": ("h264", "yuv420p"),  # without timestamps
}


def picked(info: frames.VideoInfo, *indices: int) -> list[int]:
    """Which frames came out, by their grey, when `indices` were asked for."""
    got = frames.read(info, lambda _: indices)
    assert got.indices == list(indices)
    return [videos.index_of(frame, near) for frame, near in zip(got.pixels, indices, strict=True)]


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_gives_its_frames(tmp_path: Path, name: str) -> None:
    codec, pixel_format = CONTAINERS[name]
    path = videos.write(tmp_path / name, codec, 33, (64, 48), pixel_format=pixel_format)
    info = probe(path)
    assert (info.frames, info.width, info.height, info.rotation) == (33, 64, 48, 0)
    rate = 25 if name == "a.h264" else 10  # FFmpeg's own, where no container says it
    assert info.fps == pytest.approx(rate, rel=0.01)
    assert info.seconds == pytest.approx(33 / rate, rel=0.01)
    assert info.damage is None
    assert picked(info, 0, 1, 7, 16, 31, 32) == [0, 1, 7, 16, 31, 32]


@pytest.mark.parametrize(("later", "shown"), [(-15, 18), (-12, 21), (5, 33)])
def test_an_edit_list_is_no_damage(tmp_path: Path, later: int, shown: int) -> None:
    whole = videos.write(tmp_path / "whole.mp4", "mpeg4", 33)  # every twelfth is a key frame
    info = probe(videos.shift(whole, tmp_path / "a.mp4", later))
    assert (info.frames, info.damage) == (shown, None)
    assert info.seconds == pytest.approx(shown / 10)
    assert picked(info, 0, shown - 1) == [33 - shown, 32]


def test_thousands_of_frames_are_never_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = videos.write(tmp_path / "long.mkv", "mpeg4", 8192, (16, 16), rate=30)
    calls = []
    pixels = frames._pixels
    monkeypatch.setattr(frames, "_pixels", lambda *args: calls.append(1) or pixels(*args))
    info = probe(path)
    assert info.frames == 8192
    assert picked(info, 0, 4000, 8191) == [0, 4000, 8191]
    assert len(calls) == 3


def test_rotation_is_applied(tmp_path: Path) -> None:
    import av

    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("h264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 32, "yuv420p"
        for _ in range(3):
            pixels = np.zeros((32, 64, 3), np.uint8)
            pixels[:, :16] = 255  # a bright left edge
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    info = probe(videos.turn(path, tmp_path / "turned.mp4"))
    assert (info.width, info.height, info.rotation % 360) == (32, 64, 270)
    (picture,) = frames.read(info, lambda _: [1]).pixels
    assert picture.shape == (64, 32, 3)
    # Turned clockwise, the left edge is on top.
    assert picture[:16].mean() > 200
    assert picture[20:].mean() < 30


def refused(path: Path) -> str:
    with pytest.raises(SoonerError) as caught:
        probe(path)
    text = str(caught.value)
    assert path.name in text
    assert "\n" not in text
    return text


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "aac"), ("a.mka", "aac")])
def test_sound_only(tmp_path: Path, name: str, codec: str) -> None:
    assert "only sound" in refused(videos.write_sound(tmp_path / name, codec))


def test_cut_off_with_the_index_in_front(tmp_path: Path) -> None:
    whole = videos.write(
        tmp_path / "whole.mp4", noise=True, options={"movflags": "faststart"}, frames=40
    )
    cut = videos.truncate(whole, tmp_path / "cut.mp4", 0.6)
    info = probe(cut)
    assert info.frames < 40
    assert "of about 40 frames" in (info.damage or "")
    got = frames.read(info, lambda known: [0, known.frames // 2])
    assert videos.index_of(got.pixels[1], got.indices[1]) == info.frames // 2


def test_cut_off_with_the_index_at_the_end(tmp_path: Path) -> None:
    whole = videos.write(tmp_path / "whole.mp4", noise=True)
    assert "not a video" in refused(videos.truncate(whole, tmp_path / "cut.mp4", 0.6))


def test_lost_bytes_in_the_middle(tmp_path: Path) -> None:
    """Lost packets shorten the film: frames are chosen anew among those that decode."""
    whole = videos.write(tmp_path / "a.avi", "mjpeg", 30, pixel_format="yuvj420p", noise=True)
    info = probe(videos.overwrite(whole, tmp_path / "b.avi", 0.4, 0.6))
    got = frames.read(info, lambda known: [0, known.frames - 1])
    assert got.info.damage is not None
    assert got.pixels.shape[0] == 2


def test_too_few_frames_decode(tmp_path: Path) -> None:
    whole = videos.write(tmp_path / "a.avi", "mjpeg", 30, pixel_format="yuvj420p", noise=True)
    info = probe(videos.overwrite(whole, tmp_path / "b.avi", 0.4, 0.6))
    with pytest.raises(SoonerError, match=r"--frames \d+") as caught:
        frames.read(info, lambda _: range(30))
    assert "too few for the 30" in str(caught.value)


def test_folders_are_searched_in_natural_order(tmp_path: Path) -> None:
    for name in ("clip10.mp4", "clip2.MP4", "deep/er/clip1.webm", "notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert [path.name for path in files.find([tmp_path])] == [
        "clip2.MP4", "clip10.mp4", "clip1.webm",
    ]  # fmt: skip
    twice = files.find([tmp_path / "clip10.mp4", tmp_path])
    assert len(twice) == 3


def test_random_bytes(tmp_path: Path) -> None:
    path = tmp_path / "noise.mp4"
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    assert "not a video" in refused(path)


def test_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "empty.mp4"
    path.touch()
    assert "is empty" in refused(path)
