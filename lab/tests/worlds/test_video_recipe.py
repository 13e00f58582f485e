"""What the video recipe is made of: training rows, labels, pruned rows, the bank, the pace."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner_lab.worlds.video import (
    architecture,
    bank,
    data,
    evaluate,
    losses,
    pacing,
    words,
)
from sooner_lab.worlds.video.pacing import ScenePacing
from sooner_lab.worlds.video.recipe import VideoRecipe, VideoStage
from sooner_lab.worlds.video.train import train

TINY = architecture.VideoShape(3, 32, 2, 1, 64, 192, 1, 32, 2)
MICRO = VideoRecipe(
    shape=TINY,
    stages=(
        VideoStage("vision", 1, 8, 2e-3),
        VideoStage("language", 3, 200, 2e-3, scenes=(1, 2), layers=2),
    ),
    bank=12,
    check_every=0,
)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "state.pt", weights_only=True)["model"]


def test_frozen_tower_stays_put(tmp_path: Path) -> None:
    train(tmp_path, MICRO, progress=False, stop_after=1)
    before = weights(tmp_path)
    train(tmp_path, MICRO, progress=False, stop_after=2)
    after = weights(tmp_path)
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    assert not any("vision_tower" in key or "projector" in key for key in moved)
    assert any("language_model" in key for key in moved)


def test_vocabulary_must_fit() -> None:
    with pytest.raises(ValueError, match="vocab is 100"):
        architecture.build_config(dataclasses.replace(TINY, vocab=100))


def test_training_rows_are_what_the_processor_makes() -> None:
    """Layout, video run and frames of a training row equal those of a user's chat."""
    from sooner_lab.worlds.video import build, world

    clip = evaluate.sample_clips(1, 1, 3)[0]
    writer = data.CaptionRowWriter()
    writer.prompts = [writer.prompts[0]]
    rng = next(r for r in map(np.random.default_rng, range(9)) if r.random() < 0.8)
    rng = np.random.default_rng(rng.bit_generator.seed_seq.entropy)  # type: ignore[attr-defined]
    row = writer.write(rng, [[writer.sentence(scene) for scene in clip.scenes]], 6)
    processor = build.build_processor()
    made = evaluate.build_inputs(processor, [world.render(clip)], 6)
    answer = processor.tokenizer(world.caption(clip) + words.END).input_ids
    assert row.ids[0].tolist() == made["input_ids"][0].tolist() + answer
    assert row.labels[0][row.labels[0] >= 0].tolist() == answer
    frames = world.render(clip, world.sample_indices(clip.total_frames, 6), 112)
    pixels = data.normalise(torch.from_numpy(frames).permute(0, 3, 1, 2).float() / 255)
    assert (made["pixel_values_videos"][0] - pixels).abs().mean() < 0.03


def test_token_labels_follow_the_shape() -> None:
    scene = evaluate.sample_clips(2, 1, 1)[0].scenes[0]
    labels = data.token_labels(scene, (0.13, 0.88)).reshape(4, 4, -1)
    assert (labels[:2, :, 1:] == 0).all()
    assert (labels[:, 2:, 1:] == 0).all()
    assert labels[3, 0].tolist()[1:] == [
        data.world.SHAPES.index(scene.shape) + 1,
        list(data.world.COLOURS).index(scene.colour) + 1,
        7,
    ]


def tiny_batch() -> tuple:
    """A model of two layers, a batch of two clips of two scenes and made-up features."""
    torch.manual_seed(0)
    model = architecture.build_model(dataclasses.replace(TINY, layers=2)).eval()
    writer, rng = data.CaptionRowWriter(), np.random.default_rng(0)
    clips = evaluate.sample_clips(3, 2, 2)
    sentences = [[writer.sentence(scene) for scene in clip.scenes] for clip in clips]
    batch = writer.write(rng, sentences, 4)
    return model, batch, torch.randn(2, 64, 32), len(writer.head)


@torch.no_grad()
def test_keeping_every_place_changes_nothing() -> None:
    model, batch, features, first = tiny_batch()
    everything = torch.arange(batch.ids.shape[1]).expand(2, -1)
    whole = losses.predict(model, batch, features, first, False)
    actual = losses.predict(model, batch, features, first, False, everything)
    torch.testing.assert_close(actual[0], whole[0], rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_dropping_tokens_equals_masking_them() -> None:
    """Kept tokens keep their positions and see one another across the gaps."""
    model, batch, features, first = tiny_batch()
    rows, length = batch.ids.shape
    video = range(first, first + 65)
    places = data.places_to_keep(np.random.default_rng(1), rows, length, video, (0.7, 0.95))
    actual = losses.predict(model, batch, features, first, False, places)[0]
    seen = torch.zeros(rows, length, dtype=torch.bool).scatter(1, places, True)
    mask = seen[:, None, None, :] & torch.ones(length, length, dtype=torch.bool).tril()
    decoder = model.model.language_model
    bare = decoder.forward
    decoder.forward = lambda **options: bare(**options, attention_mask=mask)
    masked = losses.predict(model, batch, features, first, False)[0]
    torch.testing.assert_close(actual, masked, rtol=1e-4, atol=1e-5)


def test_places_to_keep_hold_all_text_and_few_visual_tokens() -> None:
    video = range(3, 1028)
    places = data.places_to_keep(np.random.default_rng(2), 3, 1200, video, (0.7, 0.95))
    assert places.shape[0] == 3
    assert 0.05 * 1025 - 1 <= places.shape[1] - (1200 - 1025) <= 0.3 * 1025 + 1
    for row in places.tolist():
        assert row == sorted(set(row))
        assert set(range(1200)) - set(row) <= set(video)
    assert places[0].tolist() != places[1].tolist()


def test_bank_shows_what_a_clip_shows() -> None:
    """Features put together from a bank are near those of the rendered frames."""
    torch.manual_seed(0)
    model = architecture.build_model(TINY)
    scene_bank = bank.encode(model, data.CaptionRowWriter(), 6, (0, 0))
    picked = scene_bank.draw(np.random.default_rng(0), 1, 3)
    frame_counts = np.array([[8, 1, 5]])
    counts = frame_counts[0]
    gathered = scene_bank.gather(picked, frame_counts).unflatten(1, (14, 16))[
        0
    ]  # [frames, tokens, width]
    scenes = [scene_bank.scenes[scene] for scene in np.repeat(picked[0], counts)]
    clean = data.draw_frames(scenes, pacing.moments(counts), torch.Generator().manual_seed(1))
    with torch.no_grad():
        truth = losses.see(model, clean.pixels)
    distance = torch.cdist(gathered.flatten(1), truth.flatten(1))
    # Nearest is the frame itself, or one that shows the same of the same scene at rest.
    nearest = distance.argmin(1).tolist()
    places = np.repeat(np.arange(3), counts)
    assert [places[index] for index in nearest] == places.tolist()
    assert scene_bank.report(picked[0], counts)[1] == scene_bank.resting[picked[0, 1]]
    assert scene_bank.report(picked[0], counts)[0] == scene_bank.sentences[picked[0, 0]]


@pytest.mark.parametrize("moment", [0.0, 0.25, 0.3, 0.375, 0.45, 0.5, 0.9375])
def test_bank_has_a_moment_near_every_moment_of_a_clip(moment: float) -> None:
    scene = evaluate.sample_clips(4, 1, 1)[0].scenes[0]
    scene = dataclasses.replace(scene, start=0, end=2)
    near = bank.MOMENTS[int(bank.moment_bins(np.array(moment)))]
    gap = np.subtract(data.world.centre(scene, moment), data.world.centre(scene, near))
    assert np.abs(gap).max() < 0.1  # of the side; a token is 0.25 wide


@pytest.mark.parametrize(
    ("pace", "allowed"),
    [
        (ScenePacing(), {2}),
        (ScenePacing(pairs=0, even=1), {4, 8, 12}),
        (ScenePacing(pairs=0, uneven=1), set(range(1, 17))),
    ],
)
def test_a_pace_draws_its_kind(pace: ScenePacing, allowed: set[int]) -> None:
    rng = np.random.default_rng(0)
    drawn = [pace.draw(rng, scenes) for scenes in range(1, 11) for _ in range(20)]
    assert {int(count) for counts in drawn for count in counts} == allowed
    assert max(counts.sum() for counts in drawn) <= pace.maximum


def test_needles_are_short_and_the_rest_is_long() -> None:
    rng = np.random.default_rng(0)
    drawn = [ScenePacing(pairs=0, needle=1).draw(rng, 5) for _ in range(200)]
    assert {len(counts) for counts in drawn} == {2, 3}
    assert all(1 <= counts[1] <= 3 and 13 <= counts.sum() <= 64 for counts in drawn)
