"""The recipe: it learns, resumes to the same weights, grows without changing a function."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from sooner.errors import SoonerError
from sooner_lab.worlds.training import deepen
from sooner_lab.worlds.video import (
    architecture,
    bank,
    data,
    evaluate,
    losses,
    pacing,
    recipe,
    words,
)
from sooner_lab.worlds.video.pacing import ScenePacing
from sooner_lab.worlds.video.recipe import VideoRecipe, VideoStage
from sooner_lab.worlds.video.train import train

TINY = architecture.VideoShape(3, 32, 2, 1, 64, 192, 1, 32, 2)
MIXED = ScenePacing(0.5, 0.2, 0.2, 0.1, maximum=24)
MICRO = VideoRecipe(
    shape=TINY,
    stages=(
        VideoStage("vision", 4, 8, 2e-3),
        VideoStage("language", 4, 200, 2e-3, scenes=(1, 2), layers=2),
        VideoStage("language", 3, 200, 1e-3, scenes=(1, 2), layers=3, pace=MIXED),
        VideoStage("language", 3, 800, 1e-3, scenes=(1, 2), pace=MIXED, pruned=0.5),
    ),
    bank=12,
    check_every=0,
)


def same(first: dict, two: dict) -> bool:
    return first.keys() == two.keys() and all(torch.equal(first[key], two[key]) for key in first)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """The captioner's; the head is dropped in the end."""
    state = torch.load(folder / "state.pt", weights_only=True)["model"]
    return {key: value for key, value in state.items() if key.startswith("captioner.")}


@pytest.fixture(autouse=True)
def quick_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card measured on one short clip: the shipped weights have the real one."""
    from sooner_lab.worlds.video import card

    monkeypatch.setattr(card, "SCENES", (1,))
    monkeypatch.setattr(card, "CLIPS", 1)
    monkeypatch.setattr(card.cases, "measure", lambda *pair: {"next_token": {"full": 0.5}})


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", MICRO, progress=False)
    # Leave inside each kind of stage and exactly between two.
    for steps in (2, 2, 1, 4, 3):
        train(tmp_path / "parts", MICRO, progress=False, stop_after=steps)
        assert not (tmp_path / "parts" / "checkpoint").exists()
    seen: list[dict] = []
    parts = train(tmp_path / "parts", MICRO, progress=False, on_step=seen.append)
    assert len(seen) == 2
    assert seen[0]["stage"] == 3
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    model, processor = evaluate.load(parts)
    assert model.config.text_config.num_hidden_layers == 3
    assert model.config.text_config.vocab_size == 192
    assert len(processor.tokenizer) == len(words.vocabulary())
    assert same(model.state_dict(), evaluate.load(whole)[0].state_dict())
    card = json.loads((parts / "card.json").read_text())
    assert card["steps"] == 14
    assert card["recipe"]["seed"] == MICRO.seed


def test_seed_matters_and_resume_can_be_refused(tmp_path: Path) -> None:
    train(tmp_path / "a", MICRO, progress=False, stop_after=2)
    other = dataclasses.replace(MICRO, seed=5)
    with pytest.raises(ValueError, match="another recipe"):
        train(tmp_path / "a", other, progress=False, stop_after=2)
    first = weights(tmp_path / "a")
    train(tmp_path / "a", other, progress=False, stop_after=2, resume=False)
    assert not same(first, weights(tmp_path / "a"))


def test_frozen_tower_stays_put(tmp_path: Path) -> None:
    train(tmp_path, MICRO, progress=False, stop_after=4)
    before = weights(tmp_path)
    train(tmp_path, MICRO, progress=False, stop_after=3)
    after = weights(tmp_path)
    moved = {key for key in before if not torch.equal(before[key], after[key])}
    assert not any("vision_tower" in key or "projector" in key for key in moved)
    assert any("language_model" in key for key in moved)


@pytest.mark.parametrize("layers", [2, 5, 7])
def test_growth_keeps_the_function(layers: int) -> None:
    torch.manual_seed(0)
    model = architecture.build_model(dataclasses.replace(TINY, layers=2)).eval()
    ids = torch.randint(6, 150, (2, 9))
    before = model(input_ids=ids).logits
    deepen(model, layers, architecture.LOW)
    after = model(input_ids=ids, use_cache=True)
    torch.testing.assert_close(after.logits, before, rtol=0, atol=0)
    assert len(model.model.language_model.layers) == layers
    # Every layer has its own cache slot, so that decoding step by step agrees too.
    assert after.past_key_values.get_seq_length(layers - 1) == 9
    first = model(input_ids=ids[:, :5], use_cache=True)
    rest = model(input_ids=ids[:, 5:], past_key_values=first.past_key_values)
    torch.testing.assert_close(rest.logits, before[:, 5:], rtol=1e-4, atol=1e-5)


def test_what_was_learnt_is_done_in_the_lower_part() -> None:
    """A third of the shipped depth holds three of four old layers."""
    shape = dataclasses.replace(recipe.TARGET.shape, layers=4, vision_layers=1)
    model = architecture.build_model(shape)
    old = list(model.model.language_model.layers)
    deepen(model, 28, architecture.LOW)
    layers = list(model.model.language_model.layers)
    assert [layers.index(layer) for layer in old] == [0, 3, 6, 9]
    assert all(not layers[slot].mlp.down_proj.weight.any() for slot in (1, 5, 10, 27))


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


def test_recipe_starts_from_a_checkpoint(tmp_path: Path) -> None:
    stages = (VideoStage("language", 2, 200, 1e-3),)
    first = dataclasses.replace(MICRO, stages=stages)
    begun = train(tmp_path / "first", first, progress=False)
    more = dataclasses.replace(first, start=str(begun), seed=7)
    seen = train(tmp_path / "more", more, progress=False, stop_after=0)
    assert not seen.exists()
    halved = {key: value.half().float() for key, value in weights(tmp_path / "first").items()}
    assert same(weights(tmp_path / "more"), halved)
    card = json.loads((train(tmp_path / "more", more, progress=False) / "card.json").read_text())
    assert card["recipe"]["start"] == "checkpoint"
    assert card["start"]["recipe"]["seed"] == first.seed
    assert str(tmp_path) not in json.dumps(card)


def test_start_must_fit(tmp_path: Path) -> None:
    begun = train(tmp_path, dataclasses.replace(MICRO, stages=MICRO.stages[1:2]), progress=False)
    wide = dataclasses.replace(TINY, width=64)
    with pytest.raises(SoonerError, match="not of the shape"):
        train(tmp_path / "b", dataclasses.replace(MICRO, shape=wide, start=str(begun)))
    with pytest.raises(SoonerError, match="no checkpoint at 'nowhere'"):
        train(tmp_path / "b", dataclasses.replace(MICRO, start="nowhere"))


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
