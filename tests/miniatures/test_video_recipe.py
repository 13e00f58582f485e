"""The recipe: it learns, resumes to the same weights, grows without changing a function."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from sooner.miniatures.video import architecture, data, evaluate, recipe, words
from sooner.miniatures.video.recipe import Recipe, Stage

TINY = architecture.Shape(3, 32, 2, 1, 64, 192, 1, 32, 2)
MICRO = Recipe(
    shape=TINY,
    stages=(
        Stage("vision", 4, 8, 2e-3),
        Stage("language", 4, 200, 2e-3, scenes=(1, 2), layers=2),
        Stage("joint", 3, 200, 1e-3, scenes=(1, 2), layers=3, any_frames=0.5),
    ),
    bank=12,
    check_every=0,
)


def same(one: dict, two: dict) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "state.pt", weights_only=True)["model"]


@pytest.fixture(autouse=True)
def quick_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card measured on one short clip: the shipped weights have the real one."""
    from sooner.miniatures.video import card

    monkeypatch.setattr(card, "SCENES", (1,))
    monkeypatch.setattr(card, "CLIPS", 1)


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    whole = recipe.train(tmp_path / "whole", MICRO, progress=False)
    # Leave inside each kind of stage and exactly between two.
    for steps in (2, 2, 1, 4):
        recipe.train(tmp_path / "parts", MICRO, progress=False, stop_after=steps)
        assert not (tmp_path / "parts" / "checkpoint").exists()
    seen: list[dict] = []
    parts = recipe.train(tmp_path / "parts", MICRO, progress=False, on_step=seen.append)
    assert len(seen) == 2
    assert seen[0]["stage"] == 2
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
    model, processor = evaluate.load(parts)
    assert model.config.text_config.num_hidden_layers == 3
    assert model.config.text_config.vocab_size == 192
    assert len(processor.tokenizer) == len(words.vocabulary())
    assert same(model.state_dict(), evaluate.load(whole)[0].state_dict())
    card = json.loads((parts / "card.json").read_text())
    assert card["steps"] == 11
    assert card["recipe"]["seed"] == MICRO.seed


def test_seed_matters_and_resume_can_be_refused(tmp_path: Path) -> None:
    recipe.train(tmp_path / "a", MICRO, progress=False, stop_after=2)
    other = dataclasses.replace(MICRO, seed=5)
    with pytest.raises(ValueError, match="another recipe"):
        recipe.train(tmp_path / "a", other, progress=False, stop_after=2)
    first = weights(tmp_path / "a")
    recipe.train(tmp_path / "a", other, progress=False, stop_after=2, resume=False)
    assert not same(first, weights(tmp_path / "a"))


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    losses: list[float] = []
    config = dataclasses.replace(MICRO, stages=(Stage("language", 40, 250, 5e-3, layers=2),))
    recipe.train(
        tmp_path, config, progress=False, stop_after=39,
        on_step=lambda entry: losses.append(entry["loss"]),
    )  # fmt: skip
    assert losses[0] > 4.5  # near log(192)
    assert sum(losses[-5:]) / 5 < 0.7 * losses[0]


def test_training_leaves_torch_as_it_was(tmp_path: Path) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    recipe.train(tmp_path, MICRO, progress=False, threads=1, stop_after=3)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_frozen_tower_stays_put(tmp_path: Path) -> None:
    recipe.train(tmp_path, MICRO, progress=False, stop_after=4)
    before = weights(tmp_path)
    recipe.train(tmp_path, MICRO, progress=False, stop_after=3)
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
    architecture.grow(model, layers)
    after = model(input_ids=ids, use_cache=True)
    torch.testing.assert_close(after.logits, before, rtol=0, atol=0)
    assert len(model.model.language_model.layers) == layers
    # Every layer has its own cache slot, so that decoding step by step agrees too.
    assert after.past_key_values.get_seq_length(layers - 1) == 9
    first = model(input_ids=ids[:, :5], use_cache=True)
    rest = model(input_ids=ids[:, 5:], past_key_values=first.past_key_values)
    torch.testing.assert_close(rest.logits, before[:, 5:], rtol=1e-4, atol=1e-5)


def test_grown_layers_can_learn() -> None:
    torch.manual_seed(0)
    model = architecture.build_model(dataclasses.replace(TINY, layers=1))
    architecture.grow(model, 2)
    model(input_ids=torch.arange(6, 12)[None]).logits.square().mean().backward()
    new = model.model.language_model.layers[1]
    assert new.self_attn.o_proj.weight.grad.abs().sum() > 0
    assert new.mlp.down_proj.weight.grad.abs().sum() > 0


def test_shrinking_is_refused() -> None:
    model = architecture.build_model(TINY)
    with pytest.raises(ValueError, match="cannot grow to 2"):
        architecture.grow(model, 2)


def test_vocabulary_must_fit() -> None:
    with pytest.raises(ValueError, match="vocab is 100"):
        architecture.build_config(dataclasses.replace(TINY, vocab=100))


def test_recipe_from_plain_data() -> None:
    plain = json.loads(json.dumps(dataclasses.asdict(MICRO)))
    assert Recipe.from_dict(plain) == MICRO
    with pytest.raises(ValueError, match=r"sede.*did you mean 'seed'"):
        Recipe.from_dict({**plain, "sede": 1})
    with pytest.raises(ValueError, match="did you mean 'layers'"):
        Recipe.from_dict({**plain, "stages": [{**plain["stages"][0], "layer": 2}]})
    with pytest.raises(ValueError, match="'vison'"):
        Stage("vison", 1, 1, 1e-3)  # type: ignore[arg-type]


def test_training_rows_are_what_the_processor_makes() -> None:
    """Layout, video run and frames of a training row equal those of a user's chat."""
    import numpy as np

    from sooner.miniatures.video import build, world

    clip = evaluate.sample_clips(1, 1, 3)[0]
    writer = data.Writer()
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
