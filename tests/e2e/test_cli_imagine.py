"""`sooner imagine` through its entry point: what is printed, what is on disk, the exit code."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
import pytest
from PIL import Image

from sooner import miniatures
from sooner.cli.main import main
from sooner.tasks.imagine.progress import GREY
from tasks import videos


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("sooner: ")]


Run = Callable[..., Outcome]
PROMPT = "a red circle on blue"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `imagine` in this process, through the function that the script calls."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(["imagine", *map(str, arguments)])
        output = capsys.readouterr()
        assert "Traceback" not in output.err
        return Outcome(int(left.value.code or 0), output.out, output.err)

    return call


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


def test_a_picture_with_its_settings(run: Run, painter: list[object], tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    done = run(PROMPT, *painter, "--seed", 7, "--compare", "-o", path)
    assert done.code == 0
    assert done.out == f"{path}\n"
    for phrase in ("drawing", "16 codes", "NFE", "step compression", "mode: exact", "seed: 7",
                 "speed-up:", "parity: identical"):  # fmt: skip
        assert phrase in done.err
    story = report(path)
    assert story["prompt"] == PROMPT
    assert (story["seed"], story["method"], story["coupling"]) == ("7", "jacobi", "gumbel")
    assert int(story["nfe"]) < 16
    first = path.read_bytes()
    refused = run(PROMPT, *painter, "--seed", 7, "-o", path)
    assert refused.code == 2
    assert "is there already; use --overwrite" in refused.complaints[0]
    assert "loading" not in refused.err
    assert run(PROMPT, *painter, "--seed", 7, "-o", path, "--overwrite").code == 0
    assert path.read_bytes() == first


def test_a_grid_and_its_pictures(run: Run, painter: list[object], tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    done = run(PROMPT, *painter, "-n", 3, "--seed", 1, "-o", path, "--singles", "--quiet")
    assert done.code == 0
    assert done.err == ""
    names = [path, *(tmp_path / f"out-{index}.png" for index in (1, 2, 3))]
    assert done.out.split() == [str(name) for name in names]
    sheet = pixels(path)
    assert sheet.shape == (34, 34, 3)
    assert np.array_equal(sheet[:16, 18:], pixels(names[2]))
    assert report(names[2])["picture"] == "2"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_picture_is_seen(
    painter: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sooner.cli.live.FIRST", 0.0)
    monkeypatch.setattr("sooner.cli.live.PICTURE_SHARE", 1.0)
    monkeypatch.setattr(sys, "stderr", screen)
    with pytest.raises(SystemExit):
        main(["imagine", PROMPT, *map(str, painter), "-o", str(tmp_path / "a.png"), "-n", "2"])
    text = screen.getvalue()
    assert "▀" in text
    assert f"48;2;{GREY};{GREY};{GREY}" in text
    assert re.search(r"\d+ of 32 codes, \d+ steps", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text))


def test_many_prompts_and_a_rerun(
    run: Run, painter: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wishes, folder = tmp_path / "wishes.txt", tmp_path / "made" / "here"
    wishes.write_text(f"{PROMPT}\n\na green cross on red\n{'a red circle ' * 60}\n")
    call = ("--prompts", wishes, *painter, "-o", folder, "--seed", 1)
    first = run(*call)
    assert first.code == 2
    assert "2 of 3 drawn, 1 failed" in first.err
    (complaint,) = first.complaints
    assert "shorter prompt" in complaint
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert [record["id"] for record in records] == ["wishes.txt/1", "wishes.txt/3"]
    for record in records:
        (name,) = record["output"]
        assert report(folder / name)["prompt"] == record["prompt"]
    alone = tmp_path / "alone.png"
    run(PROMPT, *painter, "--seed", 1, "-o", alone)
    assert np.array_equal(pixels(alone), pixels(folder / records[0]["output"][0]))

    (folder / records[1]["output"][0]).unlink()
    again = run(*call, "--limit", 2)
    assert again.code == 0
    assert "1 of 2 drawn, 1 done before" in again.err
    with monkeypatch.context() as patch:  # nothing left to do: no model is even loaded
        patch.setattr("sooner.cli.options.load_drawing_model", None)
        assert "2 done before" in run(*call, "--limit", 2).err


def test_many_clips(run: Run, filmer: list[object], tmp_path: Path) -> None:
    for index, name in enumerate(("b.mp4", "a.mp4")):
        videos.write(tmp_path / name, frames=10 + index)
    (tmp_path / "c.mp4").write_bytes(b"no video" * 99)
    call = ("--continue", tmp_path, *filmer, "-o", tmp_path / "out", "--seed", 1, "-n", 2)
    done = run(*call)
    assert done.code == 2
    assert "2 of 3 drawn, 1 failed" in done.err
    assert len(list((tmp_path / "out").glob("*.mp4"))) == 4
    assert "2 done before, 1 failed" in run(*call).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no prompt given; write one, or use --continue CLIP"),
        ([""], "the prompt is empty"),
        ([PROMPT, "--continue", "x.mp4"], "PROMPT and --continue exclude each other"),
        ([PROMPT, "--jacobi-window", "0"], "jacobi_window is 0"),
        ([PROMPT, "--jacobi-window", "17"], "use at most 16"),
        ([PROMPT, "--strength", "1.5"], "strength is 1.5"),
        ([PROMPT, "--guidance", "-1"], "guidance is -1"),
        ([PROMPT, "--top-k", "0"], "top_k is 0"),
        ([PROMPT, "--top-k", "some"], "top_k is 'some'"),
        ([PROMPT, "--method", "jacoby"], "did you mean 'jacobi'"),
        ([PROMPT, "--size", "20x20"], "16 x 16 pixels only"),
        ([PROMPT, "--size", "big"], "size is 'big'"),
        ([PROMPT, "--given", "5"], "use them with --continue"),
        ([PROMPT, "--model", "./gone"], "'./gone' does not exist"),
        ([PROMPT, "-o", "no/such/a.png"], "output folder 'no/such' can't be written"),
        ([PROMPT, "-o", "a.jpg"], "must end in .png"),
        ([PROMPT, "-n", "0"], "count is 0"),
        ([PROMPT, "--preview-every", "0"], "preview-every is 0"),
        ([PROMPT, "--source", "x"], "--source is where --prompts NAME lies"),
        (["a red circle " * 60], "use a shorter prompt"),
        (["--continue", "gone.mp4"], "does not exist"),
        (["--prompts", "gone.txt", "-o", "out"], "prompt file 'gone.txt' does not exist"),
        (["--prompts", "coco"], "unknown prompt set 'coco'"),
    ],
)
def test_wrong_use_is_a_single_line(
    run: Run, painter: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: list[str], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    model = [] if "--model" in arguments else painter
    done = run(*arguments, *model)
    assert done.code == 2
    (line,) = done.complaints
    assert message in line
    assert done.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [False, True])
def test_interrupted_batches_keep_what_is_finished(
    run: Run, painter: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    from sooner.cli.live import LivePreview

    finished: list[int] = []

    def stop(self: LivePreview, progress: object) -> None:
        finished.append(sum(progress.finished))  # type: ignore[attr-defined]
        if finished[-1]:
            raise KeyboardInterrupt

    monkeypatch.setattr(LivePreview, "progress", stop)
    path = tmp_path / "a.png"
    options = ["--keep-partial"] if keep else []
    done = run(PROMPT, *painter, "-n", 6, "--jacobi-window", 2, "--seed", 0, "-o", path, *options)
    assert done.code == 130
    assert f"interrupted: {finished[-1]} of 6 pictures finished" in done.err
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
    assert report(path)["finish"] == "interrupted"
    # A drawn pixel may be grey by chance; a place where nothing was drawn is a patch of it.
    assert bool((pixels(path) == GREY).all(-1).sum() >= 16) == keep


def weights_of(name: str) -> bool:
    if name not in miniatures.names():
        return False
    parts = miniatures.find(name).parts
    return all(path.is_file() for part, path in parts.items() if part != "judge")


@pytest.mark.skipif(not weights_of("image"), reason="the image miniature is not trained yet")
def test_the_image_miniature(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    done = run("--sample", "--seed", 1, "-n", 2, "-o", path)
    assert done.code == 0
    assert pixels(path).shape == (64, 130, 3)
    story = report(path)
    assert story["model"] == "miniature image"
    assert int(story["nfe"]) < 256
    assert "knows no" not in done.err


@pytest.mark.skipif(not weights_of("motion"), reason="the motion miniature is not trained yet")
def test_the_motion_miniature(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    done = run("--continue", "sample", "--seed", 1, "-o", path)
    assert done.code == 0
    with av.open(str(path)) as container:
        story = json.loads(container.metadata["comment"])
        assert len(list(container.decode(video=0))) == 33
    assert story["model"] == "miniature motion"
    assert story["nfe"] < 720 / 2


def test_miniatures_are_trained_part_by_part(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["train", "miniature", "image", "--part", "draft", "--out", str(tmp_path)])
    assert left.value.code == 2
    assert "unknown part 'draft'" in (errors := capsys.readouterr().err)
    assert "known: classifier, codes, target" in errors
    with pytest.raises(SystemExit):
        main(["doctor"])
    output = capsys.readouterr().out
    for name in ("image", "motion", "video"):
        assert re.search(rf"^  {name} +(complete|without )", output, re.MULTILINE)
