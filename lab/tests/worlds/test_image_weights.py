"""The shipped weights, through transformers' own classes and paths."""

from __future__ import annotations

import json

import pytest

from sooner import miniatures
from sooner_lab.worlds import cards
from sooner_lab.worlds.image import architecture, build, card, classifier, codes, evaluate, world

WEIGHTS = miniatures.find("image").target.parent


@pytest.fixture(scope="module")
def target() -> tuple:
    return build.load(WEIGHTS / "target")


@pytest.fixture(scope="module")
def judge() -> classifier.Classifier:
    return classifier.load(WEIGHTS / "classifier")


def test_shapes_and_settings(target: tuple) -> None:
    model, processor = target
    assert model.config.text_config.num_hidden_layers >= 16
    assert model.model.vision_model.config.num_image_tokens == architecture.TOKENS
    settings = model.generation_config
    assert settings.generation_kwargs["boi_token_id"] == processor.tokenizer.boi_token_id
    assert settings.do_sample
    assert settings.guidance_scale > 1
    info = json.loads((WEIGHTS / "target" / "card.json").read_text())
    assert info["parameters"] == cards.parameters(model)


def test_judge_is_right_about_rebuilt_pictures(target: tuple, judge: classifier.Classifier) -> None:
    drawn = [world.drawn(index, card.TEST_SEED + 1) for index in range(48)]
    made = codes.encode(target[0].model.vqmodel, codes.to_pixels([pixels for _, pixels in drawn]))
    pixels = evaluate.pixels(target[0], made)  # [48, 3, 64, 64]
    accuracy = judge.accuracy(pixels, [picture for picture, _ in drawn])
    assert min(accuracy[name] for name in ("forms", "colours", "relation", "ground")) > 0.9
    assert judge.features(pixels).shape == (48, classifier.FEATURES)


def test_codes_are_open_but_not_blank(target: tuple) -> None:
    info = json.loads((WEIGHTS / "target" / "card.json").read_text())
    assert 1.0 < info["guided"]["entropy"] < 4.0
    assert info["codebook_perplexity"] > 100


@pytest.mark.slow
def test_pictures_show_what_is_requested(target: tuple, judge: classifier.Classifier) -> None:
    prompts = world.prompts(8, 5)
    made = evaluate.generate(*target, [prompt.caption for prompt in prompts], seed=1)
    accuracy = judge.accuracy(evaluate.pixels(target[0], made), prompts)
    # Guessing gets 1/4, 1/6, 1/3 or less, 1/6.
    assert accuracy["ground"] >= 0.75
    assert (accuracy["forms"] + accuracy["colours"] + accuracy["relation"]) / 3 > 0.6


@pytest.mark.slow
def test_prompts_of_different_length_in_a_batch(target: tuple) -> None:
    model, processor = target
    prompts = ["a red circle on green", "a red circle left of a blue square on green"]
    options = {"generation_mode": "image", "do_sample": False}
    both = model.generate(
        **processor(text=prompts, generation_mode="image", padding=True, return_tensors="pt"),
        **options,
    )
    alone = model.generate(
        **processor(text=prompts[:1], generation_mode="image", return_tensors="pt"), **options
    )
    # Rounding differs between batches, so that a late near-tie may fall the other way.
    assert (both[0, :64] == alone[0, :64]).all()
