"""The shipped motion weights: real classes, honest cards, continuations that make sense."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from sooner import miniatures
from sooner.models.clip_tokenizer import MotionTokenizer
from sooner.models.cosmos_ar.model import CosmosARForCausalLM
from sooner_lab.worlds.motion import evaluate, world
from sooner_lab.worlds.motion.evaluate import to_pixels

MOTION = miniatures.find("motion")
HOME = MOTION.target.parent
SEED = 424_242  # of clips that neither training nor the cards have seen


def report(part: str) -> dict:
    return json.loads((HOME / part / "card.json").read_text())


@pytest.fixture(scope="module")
def target() -> CosmosARForCausalLM:
    return evaluate.load_target(HOME / "target")


@pytest.fixture(scope="module")
def tokenizer() -> MotionTokenizer:
    return evaluate.load_tokenizer(HOME / "tokenizer")


@pytest.fixture(scope="module")
def clips() -> tuple[list[world.MotionClip], torch.Tensor]:
    """Twelve clips and their pixels [12, 3, 33, H, W]."""
    drawn = [world.film(SEED, index) for index in range(12)]
    frames = torch.from_numpy(np.stack([frames for _, frames in drawn]))
    return [clip for clip, _ in drawn], to_pixels(frames)


def test_real_class_and_setting(target: CosmosARForCausalLM, tokenizer: MotionTokenizer) -> None:
    assert tuple(target.config.latent_shape) == tokenizer.config.latent_shape(world.FRAMES)
    assert target.config.vocab_size == tokenizer.config.codes
    assert target.config.num_hidden_layers >= 16
    setting = target.generation_config
    assert (setting.do_sample, setting.top_p, setting.temperature) == (True, 0.8, 1.0)


@pytest.mark.parametrize("part", ["tokenizer", "target"])
def test_cards(part: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue(part)
    card_ = report(part)
    assert card_["part"] == part
    assert card_["parameters"] == sum(parameter.numel() for parameter in model.parameters())


def test_tokenizer_is_as_good_as_its_card(tokenizer: MotionTokenizer, clips: tuple) -> None:
    pixels, claimed = clips[1], report("tokenizer")["held_out"]
    error = float((tokenizer.decode(tokenizer.encode(pixels)) - pixels).square().mean())
    assert 10 * np.log10(4 / error) == pytest.approx(claimed["psnr"], abs=1.5)
    assert claimed["codes_used"] > 0.9


def test_target_foresees_as_its_card_claims(
    target: CosmosARForCausalLM, tokenizer: MotionTokenizer, clips: tuple
) -> None:
    figures = evaluate.foresight(target, tokenizer.encode(clips[1]))
    claimed = report("target")["held_out"]
    assert figures["nats"] == pytest.approx(claimed["nats"], rel=0.25)
    assert figures["entropy"] > 0.3  # there is something to sample
    assert figures["top_1"] > 0.6
