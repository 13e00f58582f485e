"""The needle miniature: its clips, its prompts, and what its shipped weights find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sooner.tasks.loading import load_pair
from sooner_lab.worlds.needle import train, world
from sooner_lab.worlds.needle.task import KINDS, LetterTask


@pytest.fixture(scope="module")
def target() -> Any:
    return load_pair(miniature="needle", device="cpu").target


@pytest.mark.parametrize("seed", range(20))
def test_a_question_has_one_right_frame(seed: int) -> None:
    clip = world.sample_clip(np.random.default_rng(seed), 40, 8, 3, at=seed)
    assert len(clip.asks) == 11
    assert (clip.colours[seed], clip.letters[seed]) == (clip.asks[0].colour, clip.asks[0].letter)
    for ask in clip.asks:
        is_needle = (clip.colours == ask.colour) & (clip.letters != world.NONE)
        assert clip.letters[np.flatnonzero(is_needle)[ask.number]] == ask.letter


def test_what_is_drawn_is_what_tokens_are_taught() -> None:
    rng = np.random.default_rng(0)
    pixels, labels = world.draw(rng, np.array([0, -1]), np.array([-1, 3]))
    assert abs(pixels[0, : world.CELL].mean((0, 1)) - world.COLOURS["red"]).max() < 40
    (place,) = np.flatnonzero(labels[1] != len(world.COLOURS) + len(world.LETTERS))
    cells = pixels[1].reshape(4, world.CELL, 4, world.CELL, 3).mean((1, 3, 4)).flatten()
    assert cells.argmax() == place
    assert labels[1, place] == len(world.COLOURS) + 3


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_written_as_in_training(target: Any, kind: str) -> None:
    sample = LetterTask(target.processor, kind).sample(1024, 0.5)
    ids = sample.inputs(target.processor)["input_ids"][0]
    text = "<|im_start|> user "
    for part in sample.parts:
        film = not isinstance(part, str)
        text += "<video> " * (len(part) * world.TOKENS + 1) if film else f"{part} "
    words = f"{text}{sample.needle.question} <|im_end|> <|im_start|> assistant".split()
    vocabulary = target.tokenizer.get_vocab()
    assert ids.tolist() == [vocabulary[word] for word in words]
    assert 900 < len(ids) < 1150


def test_a_batch_has_the_answers_that_its_frames_show(target: Any) -> None:
    writer = train.Writer(target.model, target.tokenizer.get_vocab(), np.random.default_rng(0))
    rng, stage = np.random.default_rng(1), train.Stage(1, (16, 32), 0.0, twins=0)
    ids, labels, features = writer.write(rng, stage)
    positions = train.spread(rng, ids.shape[1], np.arange(2, 200, 16))
    assert (positions.diff() >= 1).all()
    assert train.predict(target.model, ids, labels, features, positions)[1] > 0.9


def test_needles_are_found_and_every_layer_is_needed(target: Any) -> None:
    def accuracy(kind: str) -> float:
        return train.accuracy(target.model, target.processor, kind, (1024,), range(2))["1024"]

    assert accuracy(KINDS[0]) >= 0.9
    assert accuracy(KINDS[1]) >= 0.9
    for layer in target.model.model.language_model.layers:
        with layer.register_forward_hook(lambda layer, args, output: args[0]):
            assert accuracy(KINDS[0]) <= 0.6
