"""The shipped motion weights: real classes, honest cards, continuations that make sense."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from sooner import miniatures
from sooner.models.cosmos_ar.model import CosmosARForCausalLM
from sooner_lab.worlds.motion import world
from sooner_miniatures.motion_tokenizer import MotionTokenizer
from worlds.clips import to_pixels

MOTION = miniatures.find("motion")
HOME = MOTION.target.parent
SEED = 424_242  # of clips that neither training nor the cards have seen


def report(part: str) -> dict:
    return json.loads((HOME / part / "card.json").read_text())


@pytest.fixture(scope="module")
def target() -> CosmosARForCausalLM:
    return CosmosARForCausalLM.from_pretrained(HOME / "target", dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def tokenizer() -> MotionTokenizer:
    return MotionTokenizer.from_pretrained(HOME / "tokenizer", dtype=torch.float32).eval()


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
    codes = tokenizer.encode(clips[1])  # [clips, t, h, w]
    ids = codes.flatten(1)
    with torch.no_grad():
        logits = target(input_ids=ids, use_cache=False).logits.float()
    group = (world.FRAMES - 1) // (codes.shape[1] - 1)
    first = (1 + (world.PREFIX - 1) // group) * codes[0, 0].numel()  # behind the frames shown
    logs, truth = logits[:, first - 1 : -1].log_softmax(-1), ids[:, first:]
    nats = -logs.gather(-1, truth[..., None]).mean()
    assert float(nats) == pytest.approx(report("target")["held_out"]["nats"], rel=0.25)
    assert float(-(logs.exp() * logs).sum(-1).mean()) > 0.3  # there is something to sample
    assert float((logs.argmax(-1) == truth).float().mean()) > 0.6
