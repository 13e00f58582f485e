"""Pictures and clips as jobs: what is drawn, what the record says, what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tiny_canvas
from sooner.errors import SoonerError
from sooner.tasks.identity import settings_hash
from sooner.tasks.imagine import (
    DrawCallbacks,
    DrawingModel,
    ImagineSettings,
    continue_clip,
    imagine,
)
from sooner.tasks.imagine.loading import load_drawing_model, tokenizer_of
from sooner.tasks.imagine.settings import parse_size
from tasks import videos

PROMPT = "a red circle on blue"


@pytest.fixture(scope="module")
def painter(painter_folder: Path) -> DrawingModel:
    return load_drawing_model(str(painter_folder), threads=1)


@pytest.fixture(scope="module")
def camera(camera_folder: Path) -> DrawingModel:
    return load_drawing_model(str(camera_folder), "video", threads=1)


def test_a_record_describes_the_run(painter: DrawingModel) -> None:
    stages: list[str] = []
    seen: list[tuple[int, int]] = []
    callbacks = DrawCallbacks(
        on_stage=stages.append, on_progress=lambda s: seen.append((s.steps, s.tokens))
    )
    made = imagine(PROMPT, painter, ImagineSettings(count=3, seed=7, compare=True), callbacks)
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
    first, other = (
        imagine(PROMPT, painter, ImagineSettings(seed=5, count=2, jacobi_window=size))
        for size in (window, 7)
    )
    assert np.array_equal(first.pixels, other.pixels)


@pytest.mark.parametrize("method", ["jacobi", "sjd", "plain"])
def test_the_same_seed_draws_the_same_pixels(painter: DrawingModel, method: str) -> None:
    settings = ImagineSettings(method=method, count=2, seed=3)
    first, again = (imagine(PROMPT, painter, settings) for _ in range(2))
    other = imagine(PROMPT, painter, ImagineSettings(method=method, count=2, seed=4))
    assert np.array_equal(first.pixels, again.pixels)
    assert first.record["nfe"] == again.record["nfe"]
    assert not np.array_equal(first.pixels, other.pixels)
    assert not np.array_equal(first.pixels[0], first.pixels[1])


@pytest.mark.parametrize("options", [{"greedy": True}, {"seed": 3, "count": 2}], ids=str)
def test_a_red_gate_claims_no_speed(
    painter: DrawingModel, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    from sooner.tasks.imagine import batch, job

    real, plain, recorded = job.draw_batch, batch.RecordedPlain, dict[int, Any]()

    def wrong(*args: object) -> object:
        drawing = real(*args)  # type: ignore[arg-type]
        drawing.tokens[0, 3] = (drawing.tokens[0, 3] + 1) % 24
        return drawing

    monkeypatch.setattr(job, "draw_batch", wrong)
    monkeypatch.setattr(batch, "RecordedPlain", lambda *args: recorded.setdefault(0, plain(*args)))
    made = imagine(PROMPT, painter, ImagineSettings(**options, compare=True))
    assert made.record["parity"]["verdict"] == "bug"
    assert made.record["parity"]["divergence"] == 3
    assert made.record["draw_speedup"] is None
    assert set(recorded[0].steps) == {3}  # all would be gigabytes


def test_a_clip_is_continued(camera: DrawingModel, tmp_path: Path) -> None:
    path = videos.write(tmp_path / "a.mkv", "mpeg4", 12, (32, 16))
    made = continue_clip(path, camera, ImagineSettings(seed=1, count=2))
    assert made.pixels.shape == (2, 17, 8, 8, 3)
    assert made.prefix_frames == 9
    assert made.record["tokens"] == 2 * 8
    assert np.array_equal(made.pixels[0, :9], made.pixels[1, :9])
    assert not np.array_equal(made.pixels[0, 9:], made.pixels[1, 9:])
    again = continue_clip(path, camera, ImagineSettings(seed=1, count=2))
    assert np.array_equal(made.pixels, again.pixels)
    less = continue_clip(path, camera, ImagineSettings(seed=1, given=5, start=-6))
    assert less.prefix_frames == 5
    assert less.record["frames"] == {"first": 6, "count": 5}
    assert less.record["tokens"] == 12


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_settings_are_checked(options: dict, message: str) -> None:
    with pytest.raises(SoonerError) as error:
        ImagineSettings(**options)
    assert message in str(error.value)


def test_settings_have_a_digest_and_sizes_are_parsed(tmp_path: Path) -> None:
    settings = ImagineSettings(size=(32, 16), seed=1)
    assert settings.digest() == ImagineSettings(size=(32, 16), seed=1).digest()
    assert settings.digest() != ImagineSettings(seed=1).digest()
    decoder = tmp_path / "vqgan.ckpt"
    cases: Any = [(None,), (None, "auto", "lumina"), (None, "auto", None, True), (str(decoder),)]
    hashes = {settings_hash(settings, "m", *case) for case in cases}
    decoder.write_bytes(b"another")
    hashes.add(settings_hash(settings, "m", *cases[-1]))
    assert len(hashes | {settings_hash(settings, "m", None, "auto", None, False)}) == 5
    model, beside = tmp_path / "model", [tmp_path / "tokenizer", tmp_path / "model/tokenizer"]
    model.mkdir()
    assert tokenizer_of(str(model), None) is None
    for folder in beside:
        folder.mkdir()
        assert tokenizer_of(str(model), None) == str(folder)
    assert tokenizer_of(str(model), "vqgan.ckpt") == "vqgan.ckpt"
    assert parse_size("384") == (384, 384)
    assert parse_size("32x64") == (32, 64)
    for bad in ("0", "3x", "big"):
        with pytest.raises(SoonerError, match="HEIGHTxWIDTH"):
            parse_size(bad)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jacobi_window": 17}, "only 16 codes are left to draw, so use at most 16"),
        ({"size": (32, 32)}, "16 x 16 pixels only"),
    ],
)
def test_what_the_model_can_not_do(painter: DrawingModel, options: dict, message: str) -> None:
    with pytest.raises(SoonerError) as error:
        imagine(PROMPT, painter, ImagineSettings(**options))
    assert message in str(error.value)


def test_prompts_are_checked(painter: DrawingModel, camera: DrawingModel) -> None:
    with pytest.raises(SoonerError, match="the prompt is empty"):
        imagine("  ", painter)
    with pytest.raises(SoonerError, match="use a shorter prompt"):
        imagine("a red circle " * 50, painter)
    with pytest.raises(SoonerError, match="takes no prompt"):
        imagine(PROMPT, camera)


def test_clips_are_checked(camera: DrawingModel, tmp_path: Path) -> None:
    path = videos.write(tmp_path / "a.mkv", "mpeg4", 7, (16, 16))
    with pytest.raises(SoonerError, match="has 7 frames; 9 from frame 0 on"):
        continue_clip(path, camera)
    with pytest.raises(SoonerError, match="give one of 1, 5, 9, 13"):
        continue_clip(path, camera, ImagineSettings(given=6))
    with pytest.raises(SoonerError, match="guidance=1"):
        continue_clip(path, camera, ImagineSettings(given=5, guidance=3.0))


def test_a_chameleon_needs_a_decoder(tmp_path: Path) -> None:
    tiny_canvas.chameleon().config.save_pretrained(tmp_path)
    with pytest.raises(SoonerError, match=r"give its vqgan\.ckpt with --tokenizer"):
        load_drawing_model(str(tmp_path))
    with pytest.raises(SoonerError, match="did you mean 'lumina'"):
        load_drawing_model(str(tmp_path), layout="lumnia")
    (tmp_path / "vqgan.ckpt").write_bytes(b"no tensors")
    with pytest.raises(SoonerError, match="vqgan"):
        load_drawing_model(str(tmp_path))


class Scribe:
    """Stands in for the processors of families whose tokenizers are too large for a test."""

    chat_template = None

    def __call__(self, **kwargs: object) -> dict[str, object]:
        return kwargs


@pytest.mark.parametrize(
    ("family", "size", "layout", "expected"),
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
    family: str, size: tuple[int, int] | None, layout: str | None, expected: dict
) -> None:
    model = SimpleNamespace(config=SimpleNamespace(model_type=family))
    drawing_model = DrawingModel("m", model, Scribe(), options={"layout": layout})
    made = drawing_model.prompt_inputs(["a fox"], size)
    assert made["padding"] is True
    assert {name: made[name] for name in expected} == expected


def test_models_of_the_wrong_kind(
    painter_folder: Path, camera_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(SoonerError, match=r"draws no pictures from prompts.*--continue.*janus"):
        load_drawing_model(str(camera_folder))
    with pytest.raises(SoonerError, match="continues no clips; supported: cosmos_ar"):
        load_drawing_model(str(painter_folder), "video")
    with pytest.raises(SoonerError, match="does not exist"):
        load_drawing_model("./nowhere")
    with pytest.raises(SoonerError, match="unknown device"):
        load_drawing_model(str(painter_folder), device="gpu")
    with pytest.raises(SoonerError, match="holds no video tokenizer"):
        load_drawing_model(str(camera_folder), "video", tokenizer=str(tmp_path))
    for name in ("encoder.jit", "decoder.jit"):
        (tmp_path / name).write_bytes(b"code")
    with pytest.raises(SoonerError, match="--trust-remote-code"):
        load_drawing_model(str(camera_folder), "video", tokenizer=str(tmp_path))
