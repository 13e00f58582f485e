"""What goes to disk and what is read from it: pictures, clips, prompt sets, clip sets."""

from __future__ import annotations

import json
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from sooner.errors import SoonerError
from sooner.tasks.identity import read_prompts
from sooner.tasks.imagine import files
from sooner.tasks.imagine.files import load_clips
from tasks import videos

RECORD = {
    "prompt": "ein Fuchs, größer", "seed": 3, "count": 1, "model": "m", "method": "jacobi",
    "jacobi_window": 8, "coupling": "gumbel", "nfe": 5, "mode": "exact",
    "sampling": {"top_k": None, "guidance": 3.0}, "file": "some/where/clip.mp4",
}  # fmt: skip


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_pictures_carry_their_settings(tmp_path: Path) -> None:
    pixels, path = noise(8, 6, 3), tmp_path / "a.png"
    files.write_png(path, pixels, RECORD)
    with Image.open(path) as picture:
        assert np.array_equal(np.asarray(picture), pixels)
        metadata = picture.text  # type: ignore[attr-defined]
    assert metadata["prompt"] == RECORD["prompt"]
    assert (metadata["seed"], metadata["nfe"], metadata["mode"]) == ("3", "5", "exact")
    assert metadata["file"] == "clip.mp4"
    assert json.loads(metadata["sampling"]) == RECORD["sampling"]
    assert metadata["sooner"]
    first = path.read_bytes()
    files.write_png(path, pixels, RECORD)
    assert path.read_bytes() == first


def test_clips_carry_their_settings(tmp_path: Path) -> None:
    frames = np.repeat(noise(5, 2, 2, 3), 4, axis=1).repeat(4, axis=2)  # [5, 8, 8, 3]
    path = tmp_path / "a.mp4"
    files.write_mp4(path, frames, 12.0, RECORD)
    with av.open(str(path)) as container:
        metadata = json.loads(container.metadata["comment"])
        images = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert metadata["seed"] == 3
    assert metadata["sampling"]["guidance"] == 3.0
    assert len(images) == 5
    assert images[0].shape == (160, 160, 3)  # small ones are enlarged
    means = np.stack(images).reshape(5, 8, 20, 8, 20, 3).mean((2, 4))
    assert np.abs(means - frames).mean() < 12


def test_targets_are_checked(tmp_path: Path) -> None:
    there = tmp_path / "a.png"
    there.touch()
    with pytest.raises(SoonerError, match="is there already; use --overwrite"):
        files.check_target(there, ".png", overwrite=False)
    files.check_target(there, ".png", overwrite=True)
    with pytest.raises(SoonerError, match=r"must end in \.mp4"):
        files.check_target(there, ".mp4", overwrite=True)
    with pytest.raises(SoonerError, match=r"can't write .* choose another -o"):
        files.check_target(there / "b.png", ".png", overwrite=False)


def test_prompts_of_a_text_file(tmp_path: Path) -> None:
    path = tmp_path / "wishes.txt"
    path.write_text("a fox\n\n  two owls \n", encoding="utf-8")
    assert read_prompts(path) == [(1, "a fox"), (3, "  two owls ")]
    path.write_text("\n")
    with pytest.raises(SoonerError, match="has no question or prompt"):
        read_prompts(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SoonerError, match="can't be read as text"):
        read_prompts(path)
    with pytest.raises(SoonerError, match="No such file"):
        read_prompts(tmp_path / "nowhere.txt")


def test_folders_of_clips(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("b2.mp4", "b10.mp4", "out/made.mp4"):
        videos.write(tmp_path / name, frames=4)
    clips = load_clips(tmp_path, apart=tmp_path / "out")
    assert [clip.stem for clip in clips] == ["b2", "b10"]
    with pytest.raises(SoonerError, match="does not exist"):
        load_clips(tmp_path / "gone.mp4")
