"""The shipped weights, through transformers' Auto classes and the models' own processors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from sooner import miniatures
from sooner_lab.worlds.video import evaluate, film, world

VIDEO = miniatures.find("video")


@pytest.fixture(scope="module")
def target() -> tuple:
    return evaluate.load(VIDEO.target)


@pytest.fixture(scope="module")
def draft() -> tuple:
    return evaluate.load(VIDEO.draft)


@pytest.fixture(scope="module")
def accuracy(target: tuple, draft: tuple) -> dict[str, dict[str, float]]:
    """Accuracy of both on the same held-out clips of 8 scenes, sent through H.264 files."""
    clips = evaluate.sample_clips(424_242, 8, 8)
    return {
        name: evaluate.score_clips(*pair, clips, encoded=True)
        for name, pair in {"target": target, "draft": draft}.items()
    }


def test_real_classes(target: tuple, draft: tuple) -> None:
    for model, processor in (target, draft):
        assert type(model).__name__ == "LlavaOnevisionForConditionalGeneration"
        assert type(processor).__name__ == "LlavaOnevisionProcessor"
        assert model.dtype == torch.float32
        assert model.generation_config.eos_token_id == processor.tokenizer.eos_token_id


@pytest.mark.parametrize("name", world.ATTRIBUTES)
def test_target_is_right(accuracy: dict, name: str) -> None:
    # 64 scenes: at a true accuracy of 99 % four or more misses have odds below 1 in 100.
    assert accuracy["target"][name] >= 0.95


def test_draft_is_worse_but_no_guesser(accuracy: dict) -> None:
    assert accuracy["draft"]["all"] < accuracy["target"]["all"] - 0.02
    # Guessing gets 1/5, 1/6, 1/5, 1/9, 1/9.
    assert accuracy["draft"]["all"] > 0.3


def test_bundled_clip_is_captioned_right(target: tuple) -> None:
    video = film.read_video(VIDEO.sample)
    truth = json.loads(VIDEO.sample.with_suffix(".json").read_text())
    (text,) = evaluate.describe(*target, [video], num_frames=16)
    tokens = target[1].tokenizer
    assert tokens(text).input_ids == tokens(truth["caption"]).input_ids
    assert len(tokens(text).input_ids) >= 150


def test_answer_hangs_on_the_pixels(target: tuple) -> None:
    video = film.read_video(VIDEO.sample)
    texts = evaluate.describe(*target, [video, np.flip(video, axis=2)], num_frames=16)
    mirrored = {"left": "right", "right": "left"}
    swapped = " ".join(mirrored.get(word, word) for word in _words(texts[0]))
    assert swapped == " ".join(_words(texts[1]))


def _words(text: str) -> list[str]:
    return text.replace(",", " ,").replace(".", " .").split()


@pytest.mark.parametrize("prompt", ["Describe the video.", "what do you see? Zoë says: hi, 42!"])
def test_other_prompts_work(target: tuple, prompt: str) -> None:
    clip = evaluate.sample_clips(6, 1, 3)[0]
    (text,) = evaluate.describe(*target, [world.render(clip)], num_frames=6, prompt=prompt)
    assert np.mean(list(world.score(text, clip).values())) >= 0.9


def test_cards_tell_what_was_measured(accuracy: dict) -> None:
    cards = {}
    for name, folder in (("target", VIDEO.target), ("draft", VIDEO.draft)):
        cards[name] = json.loads((folder / "card.json").read_text())
        parameters = sum(p.numel() for p in evaluate.load(folder)[0].parameters())
        assert cards[name]["parameters"] == parameters
    figures = {name: card["accuracy"] for name, card in cards.items()}
    assert abs(figures["target"]["scenes_8_h264"]["all"] - accuracy["target"]["all"]) < 0.05
    # A draft that loses its place is wrong from there on, so other clips say little of it: its own.
    again = evaluate.evaluate(VIDEO.draft, figures["draft"]["clips"], 4)
    assert abs(figures["draft"]["scenes_4"]["all"] - again["all"]) < 0.01
