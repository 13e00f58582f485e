"""`sooner caption` through its entry point: what is printed, what is on disk, the exit code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Run, Terminal, records, start, wait_for
from sooner.cli.main import main
from tasks import videos


@pytest.fixture
def models(target_folder: Path, draft_folder: Path) -> list[object]:
    return ["--model", target_folder, "--draft", draft_folder, "--max-new-tokens", 12,
            "--frames", 4, "--num-draft-tokens", 3]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three videos and something else."""
    made = tmp_path / "videos"
    made.mkdir()
    for index, name in enumerate(("one.mp4", "two.mkv", "three10.avi")):
        codec = ("h264", "mpeg4", "mjpeg")[index]
        pixel_format = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        videos.write(made / name, codec, 10 + index, pixel_format=pixel_format)
    (made / "notes.txt").write_text("nothing to see")
    return made


def test_text_is_streamed_and_summed_up(
    run: Run, clip: Path, models: list[object], tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    done = run("caption", clip, *models, "--compare", "-o", output)
    assert done.code == 0
    (record,) = records(output)
    assert done.out == record["text"] + "\n"
    assert record["file"] == str(clip)
    for phrase in ("tokens: 12", "tokens per second:", "mode: exact", "acceptance:", "speed-up:",
                 "parity: identical"):  # fmt: skip
        assert phrase in done.err
    assert "loading models" in done.err
    assert "vision and prefill" in done.err


def test_on_a_terminal_the_text_is_tinted_and_whole(
    clip: Path, models: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live progress must not be drawn over the last line of the text."""
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    output = tmp_path / "out.jsonl"
    with pytest.raises(SystemExit):
        main([str(part) for part in ("caption", clip, *models, "--compare", "-o", output)])
    text = screen.getvalue()
    (record,) = records(output)
    assert record["acceptance"] > 1
    assert "\x1b[32m" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert record["text"] + "\n" in plain
    assert plain.index(record["text"]) < plain.index("decoding plainly")


def test_folders_and_reruns(
    run: Run, folder: Path, models: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out.jsonl"
    first = run("caption", folder, *models, "-o", output)
    assert first.code == 0
    content = output.read_bytes()
    names = [Path(record["file"]).name for record in records(output)]
    assert names == ["one.mp4", "three10.avi", "two.mkv"]
    assert first.out.splitlines() == [record["text"] for record in records(output)]

    with monkeypatch.context() as patch:  # nothing left to do: no model is even loaded
        patch.setattr("sooner.cli.options.Models.load", None)
        again = run("caption", folder, *models, "-o", output)
    assert again.code == 0
    assert again.out == ""
    assert again.err.count("  done before, as") == 3
    assert output.read_bytes() == content

    other = run("caption", folder / "one.mp4", *models, "--prompt", "what?", "-o", output)
    assert other.code == 0
    assert len(records(output)) == 4

    redone = run("caption", folder / "one.mp4", *models, "-o", output, "--overwrite")
    assert redone.code == 0
    names = [Path(record["file"]).name for record in records(output)]
    assert names == ["three10.avi", "two.mkv", "one.mp4", "one.mp4"]


def test_a_bad_file_does_not_stop_the_rest(
    run: Run, folder: Path, models: list[object], tmp_path: Path
) -> None:
    (folder / "a_broken.mp4").write_bytes(b"no video" * 99)
    (folder / "later").mkdir()
    videos.write_sound(folder / "later" / "sound.mp4")
    output = tmp_path / "out.jsonl"
    done = run("caption", tmp_path / "gone.mp4", folder, *models, "-o", output)
    assert done.code == 2
    assert len(records(output)) == 3
    complaints = done.errors
    assert len(complaints) == 3
    for phrase in ("gone.mp4' does not exist", "a_broken.mp4' is not a video", "has only sound"):
        assert sum(phrase in line for line in complaints) == 1
    assert "3 of 6 videos captioned, 3 failed" in done.err


def test_unexpected_errors_are_a_single_line_too(
    run: Run, folder: Path, models: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*args: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("sooner.tasks.caption.caption", stumble)
    done = run("caption", folder / "one.mp4", *models)
    assert done.code == 2
    assert "RuntimeError: two lines (--debug shows where)" in done.err
    with pytest.raises(RuntimeError):
        main([str(part) for part in ("caption", folder / "one.mp4", *models, "--debug")])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no video given"),
        (["gone.mp4"], "does not exist"),
        (["CLIP", "--method", "specultive"], "did you mean 'speculative'"),
        (["CLIP", "--metod", "plain"], "--method"),
        (["CLIP", "--num-draft-tokens", "some"], "num_draft_tokens is 'some'"),
        (["CLIP", "--frames", "many"], "'--frames'"),
        (["CLIP", "--frames", "2", "--fps", "1"], "contradict"),
        (["CLIP", "--model", "./gone"], "'./gone' does not exist"),
        (["CLIP", "-o", "no/such/folder/out.jsonl"], "can't be written"),
    ],
)
def test_wrong_use_is_a_single_line(
    run: Run, clip: Path, arguments: list[str], message: str
) -> None:
    done = run("caption", *(clip if part == "CLIP" else part for part in arguments))
    assert done.code == 2
    (line,) = done.errors
    assert message in line
    assert done.out == ""


@pytest.mark.slow
def test_interrupted_between_files(folder: Path, models: list[object], tmp_path: Path) -> None:
    """Ctrl-C: what is finished is on disk, the exit code says so, a rerun does the rest."""
    output = tmp_path / "out.jsonl"
    for index in range(40):
        videos.write(folder / f"more{index}.avi", "mjpeg", 4 + index, pixel_format="yuvj420p")
    process = start("caption", folder, *models, "-o", output)
    wait_for(process, lambda: output.exists() and output.read_bytes().count(b"\n") >= 2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "Traceback" not in err
    rows = records(output)
    assert 2 <= len(rows) < 43
    assert f"interrupted: {len(rows)} of 43 videos captioned" in err
    assert all(record["text"] for record in rows)


@pytest.mark.slow
def test_help_is_quick() -> None:
    """No command's help imports torch; that alone would take seconds."""
    script = (
        "import sys, sooner.cli.main as m\n"
        "for words in (['--help'], *([part, '--help'] for part in m.PARTS), ['--version']):\n"
        "    try: m.main(words)\n"
        "    except SystemExit as left: assert not left.code, left.code\n"
        "heavy = {'torch', 'transformers', 'av', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for word in ("caption", "verify", "doctor", "train", "bench", "--compare"):
        assert word in done.stdout


def test_a_draft_head_generates_the_same(run: Run, tmp_path: Path) -> None:
    """A head of the bundled model, untrained: useless, and still word for word the same."""
    from sooner.methods.eagle.head import EagleHead
    from sooner.tasks.loading import load_pair

    target = load_pair().target.model  # with its silent layers, as the command has it
    EagleHead.for_target(target).save_pretrained(tmp_path / "head")
    options = ["--head", tmp_path / "head", "--num-draft-tokens", 4, "--max-new-tokens", 12]
    done = run("caption", "--sample", *options, "--compare", "-o", tmp_path / "out.jsonl")
    assert done.code == 0
    assert "parity: identical" in done.err
    (record,) = records(tmp_path / "out.jsonl")
    assert record["method"] == "eagle"
    other = run("caption", "--sample", *options, "--method", "speculative")
    assert other.code != 0
    assert "not for 'speculative'" in other.err
    lacking = run("caption", "--sample", "--method", "eagle")
    assert lacking.code != 0
    assert "--head" in lacking.err


def test_changed_content_is_done_again(run: Run, models: list[object], tmp_path: Path) -> None:
    path, output = tmp_path / "a.mp4", tmp_path / "out.jsonl"
    for frames in (8, 9):
        videos.write(path, frames=frames)
        for _ in range(2):
            assert run("caption", path, *models, "-o", output).code == 0
    assert len(records(output)) == 2
