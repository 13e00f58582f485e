"""`sooner imagine` through its entry point: what is printed, what is on disk, the exit code."""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from commands import Run, Terminal, records
from sooner import miniatures
from sooner.cli.main import main
from tasks import videos

PROMPT = "a red circle on blue"


@pytest.fixture
def imagine(run: Run) -> Run:
    return functools.partial(run, "imagine")


@pytest.fixture
def painter(painter_folder: Path) -> list[object]:
    return ["--model", painter_folder, "--threads", 1]


@pytest.fixture
def filmer(camera_folder: Path) -> list[object]:
    return ["--model", camera_folder, "--threads", 1]


def report(path: Path) -> dict[str, str]:
    with Image.open(path) as picture:
        return dict(picture.text)  # type: ignore[attr-defined]


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


def test_a_picture_with_its_settings(imagine: Run, painter: list[object], tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    done = imagine(PROMPT, *painter, "--seed", 7, "--compare", "-o", path)
    assert done.code == 0
    assert done.out == f"{path}\n"
    for phrase in ("drawing", "tokens: 16", "nfe:", "step compression:", "mode: exact", "seed: 7",
                 "speed-up:", "parity: identical"):  # fmt: skip
        assert phrase in done.err
    story = report(path)
    assert story["prompt"] == PROMPT
    assert (story["seed"], story["method"], story["coupling"]) == ("7", "jacobi", "gumbel")
    assert int(story["nfe"]) < 16
    first = path.read_bytes()
    refused = imagine(PROMPT, *painter, "--seed", 7, "-o", path)
    assert refused.code == 2
    assert "is there already; use --overwrite" in refused.errors[0]
    assert "loading" not in refused.err
    assert imagine(PROMPT, *painter, "--seed", 7, "-o", path, "--overwrite").code == 0
    assert path.read_bytes() == first


def test_several_pictures(imagine: Run, painter: list[object], tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    done = imagine(PROMPT, *painter, "-n", 3, "--seed", 1, "-o", path, "--quiet")
    assert done.code == 0
    assert done.err == ""
    names = [tmp_path / f"out-{index}.png" for index in (1, 2, 3)]
    assert done.out.split() == [str(name) for name in names]
    assert [pixels(name).shape for name in names] == [(16, 16, 3)] * 3
    assert not np.array_equal(pixels(names[0]), pixels(names[1]))
    assert report(names[1])["picture"] == "2"


def test_on_a_terminal_codes_are_counted(
    painter: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stderr", screen)
    with pytest.raises(SystemExit):
        main(["imagine", PROMPT, *map(str, painter), "-o", str(tmp_path / "a.png"), "-n", "2"])
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert re.search(r"drawing .*\d+/32", text)


def test_many_prompts_and_a_rerun(
    imagine: Run, painter: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes, folder = tmp_path / "wishes.txt", tmp_path / "made" / "here"
    wishes.write_text(f"{PROMPT}\n\na green cross on red\n{'a red circle ' * 60}\n")
    call = ("--prompts", wishes, *painter, "-o", folder, "--seed", 1)
    first = imagine(*call)
    assert first.code == 2
    assert "2 of 3 drawn, 1 failed" in first.err
    (complaint,) = first.errors
    assert "shorter prompt" in complaint
    drawn = records(folder / "records.jsonl")
    assert [record["id"] for record in drawn] == ["wishes.txt/1", "wishes.txt/3"]
    for record in drawn:
        (name,) = record["output"]
        assert report(folder / name)["prompt"] == record["prompt"]
    alone = tmp_path / "alone.png"
    imagine(PROMPT, *painter, "--seed", 1, "-o", alone)
    assert np.array_equal(pixels(alone), pixels(folder / drawn[0]["output"][0]))

    (folder / drawn[1]["output"][0]).unlink()
    again = imagine(*call, "--limit", 2)
    assert again.code == 0
    assert "1 of 2 drawn, 1 done before" in again.err
    with monkeypatch.context() as patch:  # nothing left to do: no model is even loaded
        patch.setattr("sooner.tasks.imagine.loading.load_drawing_model", None)
        assert "2 done before" in imagine(*call, "--limit", 2).err


def test_many_clips(imagine: Run, filmer: list[object], tmp_path: Path) -> None:
    for index, name in enumerate(("b.mp4", "a.mp4")):
        videos.write(tmp_path / name, frames=10 + index)
    (tmp_path / "c.mp4").write_bytes(b"no video" * 99)
    call = ("--continue", tmp_path, *filmer, "-o", tmp_path / "out", "--seed", 1, "-n", 2)
    done = imagine(*call)
    assert done.code == 2
    assert "2 of 3 drawn, 1 failed" in done.err
    assert len(list((tmp_path / "out").glob("*.mp4"))) == 4
    assert "2 done before, 1 failed" in imagine(*call).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no prompt given; write one prompt, or use one of --continue CLIP"),
        ([""], "the prompt is empty"),
        ([PROMPT, "--continue", "x.mp4"], "PROMPT and --continue given; write one prompt"),
        ([PROMPT, "--jacobi-window", "17"], "use at most 16"),
        ([PROMPT, "--top-k", "some"], "top_k is 'some'"),
        ([PROMPT, "--method", "jacoby"], "did you mean 'jacobi'"),
        ([PROMPT, "--size", "20x20"], "16 x 16 pixels only"),
        ([PROMPT, "--size", "big"], "size is 'big'"),
        ([PROMPT, "--given", "5"], "use them with --continue"),
        ([PROMPT, "-o", "/dev/null/a.png"], "can't write '/dev/null/a.png'"),
        ([PROMPT, "-o", "a.jpg"], "must end in .png"),
        ([PROMPT, "--limit", "0"], "limit is 0"),
        (["a red circle " * 60], "use a shorter prompt"),
        (["--continue", "gone.mp4"], "does not exist"),
        (["--prompts", "gone.txt", "-o", "out"], "prompt file 'gone.txt' can't be read"),
    ],
)
def test_wrong_use_is_a_single_line(
    imagine: Run, painter: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    done = imagine(*arguments, *painter)
    assert done.code == 2
    (line,) = done.errors
    assert message in line
    assert done.out == ""
    assert not list(tmp_path.iterdir())


def weights_of(name: str) -> bool:
    return name in miniatures.names()


@pytest.mark.skipif(not weights_of("image"), reason="the image miniature is not trained yet")
def test_the_image_miniature(imagine: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    done = imagine("--sample", "--seed", 1, "-o", path)
    assert done.code == 0
    assert pixels(path).shape == (64, 64, 3)
    story = report(path)
    assert story["model"] == "miniature image"
    assert int(story["nfe"]) < 256
    assert "knows no" not in done.err


@pytest.mark.skipif(not weights_of("motion"), reason="the motion miniature is not trained yet")
def test_the_motion_miniature(imagine: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    done = imagine("--continue", "sample", "--seed", 1, "-o", path)
    assert done.code == 0
    with av.open(str(path)) as container:
        story = json.loads(container.metadata["comment"])
        assert len(list(container.decode(video=0))) == 33
    assert story["model"] == "miniature motion"
    assert story["nfe"] < 720 / 2


def test_doctor_knows_the_miniatures(run: Run) -> None:
    assert "  installed  document, image, motion, needle, robot, video\n" in run("doctor").out
