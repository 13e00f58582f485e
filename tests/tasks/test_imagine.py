"""Pictures and clips as jobs: what is drawn, what the record says, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sooner.errors import SoonerError
from sooner.tasks.imagine import (
    DrawCallbacks,
    DrawingModel,
    ImagineSettings,
    continue_clip,
    imagine,
)
from sooner.tasks.imagine.job import Stopped
from sooner.tasks.imagine.loading import load_drawing_model
from sooner.tasks.imagine.progress import GREY, DrawingProgress
from sooner.tasks.imagine.prompting import build_prompt
from tasks import videos

PROMPT = "a red circle on blue"


@pytest.fixture(scope="module")
def painter(painter_folder: Path) -> DrawingModel:
    return load_drawing_model(str(painter_folder), threads=1)


@pytest.fixture(scope="module")
def camera(camera_folder: Path) -> DrawingModel:
    return load_drawing_model(str(camera_folder), "video", threads=1)


def test_a_record_says_what_was_done(painter: DrawingModel) -> None:
    stages: list[str] = []
    seen: list[tuple[int, int]] = []
    told = DrawCallbacks(
        on_stage=stages.append, on_progress=lambda s: seen.append((s.steps, s.tokens))
    )
    made = imagine(PROMPT, painter, ImagineSettings(count=3, seed=7, compare=True), told)
    record = made.record
    assert made.pixels.shape == (3, 1, 16, 16, 3)
    assert made.pixels.dtype == np.uint8
    assert record["tokens"] == 3 * 16
    assert record["nfe"] < 16 == record["plain"]["nfe"]
    assert record["step_compression"] == 16 / record["nfe"]
    assert record["mode"] == "exact"
    assert record["seed"] == 7
    assert record["sampling"]["guidance"] == 2.0
    assert record["draw_speedup"] is not None
    assert record["parity"]["verdict"] == "identical"  # the noise of a place is the seed's
    assert stages == ["warm-up", "draw", "pixels", "compare"]
    assert (record["nfe"], 48) in seen
    assert seen[-1] == (16, 48)


@pytest.mark.parametrize("window", [1, 3, 16])
def test_the_window_does_not_change_the_picture(painter: DrawingModel, window: int) -> None:
    one, other = (
        imagine(PROMPT, painter, ImagineSettings(seed=5, count=2, jacobi_window=size))
        for size in (window, 7)
    )
    assert np.array_equal(one.pixels, other.pixels)


@pytest.mark.parametrize("method", ["jacobi", "sjd", "gsd", "plain"])
def test_the_same_seed_draws_the_same_pixels(painter: DrawingModel, method: str) -> None:
    settings = ImagineSettings(method=method, count=2, seed=3)
    one, again = (imagine(PROMPT, painter, settings) for _ in range(2))
    other = imagine(PROMPT, painter, ImagineSettings(method=method, count=2, seed=4))
    assert np.array_equal(one.pixels, again.pixels)
    assert one.record["nfe"] == again.record["nfe"]
    assert not np.array_equal(one.pixels, other.pixels)
    assert not np.array_equal(one.pixels[0], one.pixels[1])


@pytest.mark.parametrize("asked", [{"greedy": True}, {"seed": 3, "count": 2}], ids=str)
def test_a_red_gate_claims_no_speed(
    painter: DrawingModel, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    from sooner.tasks.imagine import job

    real = job.draw_batch

    def wrong(*args: object) -> object:
        drawing, progress = real(*args)  # type: ignore[arg-type]
        drawing.tokens[0, 3] = (drawing.tokens[0, 3] + 1) % 24
        return drawing, progress

    monkeypatch.setattr(job, "draw_batch", wrong)
    made = imagine(PROMPT, painter, ImagineSettings(**asked, compare=True))
    assert made.record["parity"]["verdict"] == "bug"
    assert made.record["parity"]["divergence"] == 3
    assert made.record["draw_speedup"] is None


def test_a_clip_is_continued(camera: DrawingModel, tmp_path: Path) -> None:
    path = videos.write(tmp_path / "a.mkv", "mpeg4", 12, (32, 16))
    made = continue_clip(path, camera, ImagineSettings(seed=1, count=2))
    assert made.pixels.shape == (2, 17, 8, 8, 3)
    assert made.given_frames == 9
    assert made.record["tokens"] == 2 * 8
    assert np.array_equal(made.pixels[0, :9], made.pixels[1, :9])
    assert not np.array_equal(made.pixels[0, 9:], made.pixels[1, 9:])
    again = continue_clip(path, camera, ImagineSettings(seed=1, count=2))
    assert np.array_equal(made.pixels, again.pixels)
    less = continue_clip(path, camera, ImagineSettings(seed=1, given=5, start=-6))
    assert less.given_frames == 5
    assert less.record["frames"] == {"first": 6, "count": 5}
    assert less.record["tokens"] == 12


def stop_when(condition: object) -> DrawCallbacks:
    def watch(progress: DrawingProgress) -> None:
        if condition(progress):  # type: ignore[operator]
            raise KeyboardInterrupt

    return DrawCallbacks(on_progress=watch)


def test_interrupted_pictures_are_there_as_far_as_they_go(painter: DrawingModel) -> None:
    settings = ImagineSettings(count=6, seed=0, jacobi_window=2)
    whole = imagine(PROMPT, painter, settings).pixels
    with pytest.raises(Stopped) as stopped:
        imagine(PROMPT, painter, settings, stop_when(lambda progress: any(progress.finished)))
    made = stopped.value.made
    assert 0 < sum(made.finished) < 6
    assert made.record["finish"] == "interrupted"
    for row, finished in enumerate(made.finished):
        assert np.array_equal(made.pixels[row], whole[row]) == finished
        assert (made.pixels[row, 0, -1, -1] == GREY).all() != finished


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "jacoby"}, "did you mean 'jacobi'"),
        ({"coupling": "gumble"}, "did you mean 'gumbel'"),
        ({"init": "lats"}, "did you mean 'last'"),
        ({"jacobi_window": 0}, "jacobi_window is 0"),
        ({"strength": 1.5}, "strength is 1.5; it must lie in 0 to 1"),
        ({"strength": float("nan")}, "strength is nan"),
        ({"guidance": -1.0}, "guidance is -1; it must be 0 or more"),
        ({"top_k": 0}, "top_k is 0; it must be 'all' or a whole number of 1 or more"),
        ({"top_p": 0.0}, "top_p is 0; it must be above 0"),
        ({"temperature": 0.0}, "temperature is 0; it must be above 0; --greedy"),
        ({"count": 0}, "count is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"greedy": True, "count": 2}, "draws the same picture"),
        ({"greedy": True, "top_k": 4}, "top_k=4 has no effect with greedy"),
        (
            {"method": "plain", "jacobi_window": 4},
            "jacobi_window=4 has no effect with method 'plain'",
        ),
        ({"method": "sjd", "coupling": "gumbel"}, "coupling=gumbel has no effect"),
    ],
)
def test_settings_are_checked(options: dict, said: str) -> None:
    with pytest.raises(SoonerError) as error:
        ImagineSettings(**options)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"jacobi_window": 17}, "only 16 codes are left to draw, so use at most 16"),
        ({"size": (32, 32)}, "16 x 16 pixels only"),
    ],
)
def test_what_the_model_can_not_do(painter: DrawingModel, options: dict, said: str) -> None:
    with pytest.raises(SoonerError) as error:
        imagine(PROMPT, painter, ImagineSettings(**options))
    assert said in str(error.value)


class Scribe:
    """Stands in for the processors of families whose tokenizers are too large for a test."""

    chat_template = None

    def __call__(self, **asked: object) -> dict[str, object]:
        return asked


@pytest.mark.parametrize(
    ("family", "size", "layout", "told"),
    [
        ("janus", None, None, {"text": ["a fox"], "generation_mode": "image"}),
        ("chameleon", None, None, {"text": ["a fox"]}),
        ("emu3", None, None, {"text": ["a fox"], "return_for_image_generation": True}),
        ("emu3", (32, 64), None, {"ratio": "64:32", "image_area": 2048}),
        ("chameleon", (512, 768), "lumina", {"text": [
            "Generate an image of 768x512 according to the following prompt:\na fox"]}),
    ],
)  # fmt: skip
def test_prompts_are_written_as_each_family_reads_them(
    family: str, size: tuple[int, int] | None, layout: str | None, told: dict
) -> None:
    made = build_prompt(family, Scribe(), ["a fox"], size, layout)
    assert made["padding"] is True
    assert {name: made[name] for name in told} == told
