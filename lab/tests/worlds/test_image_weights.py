"""The shipped weights, through transformers' own classes and paths."""

from __future__ import annotations

import json

import pytest
from transformers import JanusProcessor

from sooner import miniatures
from sooner.tasks.imagine.loading import load_drawing_model
from sooner_lab.worlds.image import world

WEIGHTS = miniatures.find("image").target.parent


@pytest.fixture(scope="module")
def target() -> tuple:
    model = load_drawing_model(None, "image", device="cpu", dtype="float32").model
    return model, JanusProcessor.from_pretrained(WEIGHTS / "target")


def test_shapes_and_settings(target: tuple) -> None:
    model, processor = target
    assert model.config.text_config.num_hidden_layers >= 16
    assert model.model.vision_model.config.num_image_tokens == 256
    settings = model.generation_config
    assert settings.generation_kwargs["boi_token_id"] == processor.tokenizer.boi_token_id
    assert settings.do_sample
    assert settings.guidance_scale > 1
    info = json.loads((WEIGHTS / "target" / "card.json").read_text())
    assert info["parameters"] == sum(weights.numel() for weights in model.parameters())


def test_codes_are_open_but_not_blank(target: tuple) -> None:
    info = json.loads((WEIGHTS / "target" / "card.json").read_text())
    assert 1.0 < info["guided"]["entropy"] < 4.0
    assert info["codebook_perplexity"] > 100


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


def test_prompts_are_held_out_and_follow_from_their_seed(target: tuple) -> None:
    prompts, tokenizer = world.prompts(40, 3), target[1].tokenizer
    assert prompts[:5] == world.prompts(5, 3) != world.prompts(5, 4)
    assert all(world.is_test_caption(prompt) for prompt in prompts)
    assert all(tokenizer.unk_token_id not in ids for ids in tokenizer(prompts).input_ids)
