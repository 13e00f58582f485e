"""The shipped weights, through `generate` of transformers and the models' own processors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from sooner import miniatures
from sooner_lab.worlds.video import film, world
from sooner_lab.worlds.video.questions import build_inputs, sample_clips
from worlds.shallow import shallow_pair

VIDEO = miniatures.find("video")


@pytest.fixture(scope="module")
def pair() -> Any:
    return shallow_pair("video")


def describe(
    loaded: Any, videos: Sequence[np.ndarray], num_frames: int, prompt: str = world.PROMPT
) -> list[str]:
    """Greedy captions by HF's `generate`."""
    inputs = build_inputs(loaded.processor, videos, num_frames, prompt)
    made = loaded.model.generate(**inputs, do_sample=False, max_new_tokens=320)
    answers = made[:, inputs["input_ids"].shape[1] :]
    return [
        text.strip() for text in loaded.processor.batch_decode(answers, skip_special_tokens=True)
    ]


@pytest.fixture(scope="module")
def accuracy(pair: Any, tmp_path_factory: Any) -> dict[str, dict[str, float]]:
    """Accuracy of both on the same held-out clips of 8 scenes, sent through H.264 files."""
    clips = sample_clips(424_242, 8, 8)
    path = tmp_path_factory.mktemp("clips") / "clip.mp4"
    videos = [film.read_video(film.write_video(clip, path)) for clip in clips]
    scores = {}
    for name, loaded in (("target", pair.target), ("draft", pair.draft)):
        texts = describe(loaded, videos, num_frames=16)
        rows = [world.score(text, clip) for text, clip in zip(texts, clips, strict=True)]
        means = {each: float(np.mean([row[each] for row in rows])) for each in world.ATTRIBUTES}
        scores[name] = {**means, "all": float(np.mean(list(means.values())))}
    return scores


def test_real_classes(pair: Any) -> None:
    for loaded in (pair.target, pair.draft):
        assert type(loaded.model).__name__ == "LlavaOnevisionForConditionalGeneration"
        assert type(loaded.processor).__name__ == "LlavaOnevisionProcessor"
        ends = loaded.model.generation_config.eos_token_id
        assert ends == loaded.processor.tokenizer.eos_token_id


@pytest.mark.parametrize("name", world.ATTRIBUTES)
def test_target_is_right(accuracy: dict, name: str) -> None:
    # 64 scenes: at a true accuracy of 99 % four or more misses have odds below 1 in 100.
    assert accuracy["target"][name] >= 0.95


def test_draft_is_worse_but_no_guesser(accuracy: dict) -> None:
    assert accuracy["draft"]["all"] < accuracy["target"]["all"] - 0.02
    # Guessing gets 1/5, 1/6, 1/5, 1/9, 1/9.
    assert accuracy["draft"]["all"] > 0.3


def test_bundled_clip_is_captioned_right_and_so_is_its_mirror_image(pair: Any) -> None:
    video = film.read_video(VIDEO.sample)
    truth = json.loads(VIDEO.sample.with_suffix(".json").read_text())
    texts = describe(pair.target, [video, np.flip(video, axis=2)], num_frames=16)
    tokens = pair.target.tokenizer
    assert tokens(texts[0]).input_ids == tokens(truth["caption"]).input_ids
    assert len(tokens(texts[0]).input_ids) >= 150
    mirrored = {"left": "right", "right": "left"}
    swapped = " ".join(mirrored.get(word, word) for word in _words(texts[0]))
    assert swapped == " ".join(_words(texts[1]))


def _words(text: str) -> list[str]:
    return text.replace(",", " ,").replace(".", " .").split()


@pytest.mark.parametrize("prompt", ["Describe the video.", "what do you see? Zoë says: hi, 42!"])
def test_other_prompts_work(pair: Any, prompt: str) -> None:
    clip = sample_clips(6, 1, 3)[0]
    (text,) = describe(pair.target, [world.render(clip)], num_frames=6, prompt=prompt)
    assert np.mean(list(world.score(text, clip).values())) >= 0.9
