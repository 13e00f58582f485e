"""Needles in haystacks: counted by real processors, read by tiny models, found again by pixels."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoProcessor

import tiny
from sooner import miniatures
from sooner.errors import SoonerError
from sooner_lab.needles import (
    NeedleSample,
    NeedleTask,
    reader,
    run,
    shape_needle,
)
from sooner_lab.needles.layout import cut, needle_place
from sooner_lab.needles.needle import documents, fill, haystack
from sooner_lab.worlds.video import world
from tasks.fixtures import random_model
from tasks.test_task_families import PROCESSORS

FAMILIES = ("llava_onevision", *PROCESSORS)
MIXED = {"text_share": 0.25, "piece": 4}
KINDS: dict[str, dict[str, Any]] = {"film": {}, "mixed": MIXED}


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def processors() -> dict[str, Any]:
    return {
        "llava_onevision": AutoProcessor.from_pretrained(miniatures.find("video").target),
        **{name: make() for name, make in PROCESSORS.items()},
    }


@pytest.fixture(scope="module")
def llava(processors: dict[str, Any]) -> Any:
    return processors["llava_onevision"]


def task_of(processors: dict[str, Any], family: str, **options: Any) -> NeedleTask:
    side = 112 if family == "llava_onevision" else 56
    return NeedleTask(processors[family], side=side, **options)


def film_of(sample: NeedleSample) -> np.ndarray:
    return np.concatenate([part for part in sample.parts if not isinstance(part, str)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_report_counts_what_the_processor_makes(
    processors: dict[str, Any], family: str, kind: str
) -> None:
    sample = task_of(processors, family, **KINDS[kind]).sample(16, 0.5, 3)
    inputs = sample.inputs(processors[family])
    # A time stamp of Qwen3-VL has more digits late in a film.
    slack = 0.03 if family == "qwen3_vl" else 0
    width = inputs["input_ids"].shape[1]
    assert abs(sample.report["tokens"] - width) <= slack * width


@pytest.mark.parametrize("family", FAMILIES)
def test_a_quarter_of_a_mixed_haystack_is_text(processors: dict[str, Any], family: str) -> None:
    made = task_of(processors, family, text_share=0.25, piece=16).sample(96, 0.3, 1)
    assert made.report["text_share"] == pytest.approx(0.25, abs=0.02)
    kinds = [isinstance(part, str) for part in made.parts]
    assert kinds == [bool(place % 2) for place in range(len(kinds))], "text between all pieces"
    assert not kinds[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_tiny_model_reads_a_sample(processors: dict[str, Any], family: str, kind: str) -> None:
    processor = processors[family]
    model = tiny.model(family)
    if family == "llava_onevision":  # with the vocabulary of its own processor
        torch.manual_seed(0)
        model = random_model().eval()
    made = task_of(processors, family, **KINDS[kind]).sample(8, 0.5, 0)
    answer = reader(model, processor, max_new_tokens=3)(made)
    assert isinstance(answer, str)
    assert isinstance(made.score(answer), bool)


def test_words_and_frames_keep_their_order_in_a_template_that_puts_videos_first(
    llava: Any,
) -> None:
    made = NeedleTask(llava, **MIXED).sample(12, 0.5, 0)
    prompt = made.prompt(llava)
    left = prompt
    for part in made.prompt_parts:
        piece = llava.video_token if not isinstance(part, str) else part
        left = left.partition(piece)[2]
        assert left, f"'{piece[:20]}' is out of order"


def test_a_film_alone_has_the_prompt_of_the_chat_template(llava: Any) -> None:
    made = NeedleTask(llava).sample(8, 0.5, 0)
    content = [{"type": "video"}, {"type": "text", "text": made.needle.question}]
    expected = llava.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )
    assert made.prompt(llava) == expected


@pytest.mark.parametrize(("depth", "place"), [(0.0, 0), (0.25, 5), (0.5, 10), (1.0, 19)])
def test_depth_is_the_share_of_frames_before_the_needle(
    llava: Any, depth: float, place: int
) -> None:
    made = NeedleTask(llava).sample(20, depth, 5)
    film = film_of(made)
    indices = [index for index, frame in enumerate(film) if (frame == made.needle.frames[0]).all()]
    assert indices == [place]
    assert made.report["frame"] == place


@pytest.mark.parametrize("kind", KINDS)
def test_no_document_names_the_needles_shape(llava: Any, kind: str) -> None:
    for seed in range(3):
        made = NeedleTask(llava, **KINDS[kind]).sample(16, 0.5, seed)
        text = " ".join(part for part in made.parts if isinstance(part, str))
        assert made.needle.scene.shape not in text.split()


@pytest.mark.parametrize("at", [0, 3, 8])
def test_haystack_scenes_have_another_shape_and_background_at_the_needle(at: int) -> None:
    needle = shape_needle(np.random.default_rng(5), side=28)
    hay = haystack(8, at, needle.scene, 28, np.random.default_rng(0))
    background = np.array(world.BACKGROUNDS[needle.scene.background])
    neighbours = [hay[index] for index in (at - 1, at) if 0 <= index < 8]
    assert all((frame[0, 0] != background).any() for frame in neighbours)


def test_a_seed_decides_everything(llava: Any) -> None:
    first, again = (NeedleTask(llava, **MIXED).sample(16, 0.5, 7) for _ in range(2))
    other = NeedleTask(llava, **MIXED).sample(16, 0.5, 8)
    assert (first.report, first.needle.scene) == (again.report, again.needle.scene)
    assert (film_of(first) == film_of(again)).all()
    assert (film_of(first) != film_of(other)).any()


def test_documents_are_words_of_the_miniature(llava: Any) -> None:
    sentence = next(documents(np.random.default_rng(0), "star"))
    tokens = llava.tokenizer(" ".join(sentence)).input_ids
    unknown = llava.tokenizer.unk_token_id
    assert unknown not in tokens
    assert len(tokens) == len(" ".join(sentence).split()), "one token a word"


@given(st.integers(4, 300), st.integers(2, 40), st.sampled_from([1, 2]), st.floats(0, 1))
def test_layouts_hold(frames: int, piece: int, group: int, depth: float) -> None:
    length, pieces = cut(frames, piece, group, is_mixed=True)
    assert length % (pieces * group) == 0
    assert pieces >= 2
    assert frames - length < pieces * group
    at = needle_place(length, pieces, group, depth, group)
    assert at % group == 0
    assert 0 <= at <= length - group
    assert abs(at - depth * (length - group)) <= group
    size = length // pieces
    assert at // size == (at + group - 1) // size, "the needle lies in one piece"


def test_what_a_gap_takes_too_much_the_next_makes_up_for() -> None:
    texts = iter(lambda: ["x" * 10] * 3, None)
    gaps = fill(texts, [14, 14, 14, 14], len)
    assert [len(gap) for gap in gaps] == [1, 2, 1, 2]


def test_bad_requests_are_refused(llava: Any) -> None:
    with pytest.raises(SoonerError, match=r"depth is 1\.5"):
        NeedleTask(llava).sample(8, 1.5)
    with pytest.raises(SoonerError, match="1 frames are too few"):
        NeedleTask(llava, **MIXED).sample(1, 0.5)
    with pytest.raises(SoonerError, match="unknown needle question 'size'"):
        shape_needle(np.random.default_rng(0), ask="size")
    with pytest.raises(SoonerError, match="text_share is 1"):
        NeedleTask(llava, text_share=1)


def test_words_are_scored(llava: Any) -> None:
    opened = NeedleTask(llava).sample(8, 0.5, 3)
    answer = opened.needle.answer
    assert opened.score(f"The {answer.upper()}.")
    assert not opened.score("no idea")


def test_a_run_fills_the_grid(llava: Any) -> None:
    seen: list[NeedleSample] = []

    def reply(sample: NeedleSample) -> str:
        seen.append(sample)
        return sample.needle.answer if sample.report["depth"] < 0.9 else "?"

    axes: Any = ([4, 6], [0.0, 1.0], [0, 1])
    grid = run(NeedleTask(llava), reply, *axes)
    assert len({(each.report["length"], each.report["depth"]) for each in seen}) == 4
    for seed in (0, 1):  # a seed's needle is the same at every length and depth
        scenes = [each.needle.scene for each in seen if each.report["seed"] == seed]
        assert scenes == [scenes[0]] * 4
    assert grid.accuracy.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    plain = json.loads(json.dumps(grid.as_dict()))
    assert (plain["right"], plain["asked"]) == ([[2, 0], [2, 0]], [[2, 2], [2, 2]])
