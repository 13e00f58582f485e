"""What prompts have in common is computed once, and what merely looks alike is not shared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch

import sooner
import tiny
from method_matrix import METHODS
from page_prompts import GREEDY, SLOTS, alone, prompt_of
from sooner.engine.memory.media import MediaItem, VisualFeatures

QUESTION, OTHER = (5, 6, 7), (60, 61, 62, 63)
SEEING = ("llava_onevision", "qwen2_5_vl", "qwen3_vl", "paddleocr_vl", "hunyuan_vl")
PLACES = pytest.mark.parametrize("paged", [False, True])


class Counted:
    """Tokens that went through a model's decoder, and calls of its vision tower."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.encoded = 0


@contextmanager
def counted(model: Any) -> Iterator[Counted]:
    count = Counted()

    def forward(layer: Any, args: Any) -> None:
        count.tokens.append(args[0].shape[1])

    def encode(tower: Any, args: Any) -> None:
        count.encoded += 1

    hooks = [model.get_decoder().layers[0].register_forward_pre_hook(forward)]
    towers = [getattr(model.base_model, name, None) for name in ("visual", "vision_tower")]
    hooks += [module.register_forward_pre_hook(encode) for module in towers if module is not None]
    try:
        yield count
    finally:
        for hook in hooks:
            hook.remove()


def answer(engine: sooner.Engine, inputs: dict[str, Any], **options: Any) -> Any:
    request = engine.add_request(inputs, **{"max_new_tokens": 9, **GREEDY, **options})
    engine.run()
    assert request.error is None, request.error
    return request


def test_two_threads_may_embed_pictures_at_once() -> None:
    body, features = tiny.model("qwen2_5_vl").model, VisualFeatures(1 << 20)
    original, media = body.get_image_features, {"image": [MediaItem(b"", [0])]}
    first, second = (ExitStack() for _ in range(2))
    for stack in (first, second):
        stack.enter_context(features.reusing(body, media))
    first.close()  # takes off what the second put there
    second.close()
    assert body.get_image_features == original


@PLACES
@pytest.mark.parametrize("family", SEEING)
def test_the_second_question_on_a_clip_forwards_only_its_tokens(family: str, paged: bool) -> None:
    kind = "video" if "video" in tiny.kinds(family) else "image"
    model = tiny.model(family)
    engine = sooner.Engine(model, pages=60, paged=paged)
    first = answer(engine, prompt_of(family, kind, QUESTION))
    shared = prompt_of(family, kind, ())["input_ids"].shape[1] // SLOTS * SLOTS
    with counted(model) as count:
        second = answer(engine, prompt_of(family, kind, OTHER))
    width = prompt_of(family, kind, OTHER)["input_ids"].shape[1]
    assert first.cached_tokens == 0
    assert second.cached_tokens == shared > 0
    assert count.tokens[0] == width - shared
    assert set(count.tokens[1:]) == {1}
    assert count.encoded == 0
    assert [*first.tokens, *second.tokens] == [
        alone(family, kind, tail, 1)[0][:9] for tail in (QUESTION, OTHER)
    ]
    assert (engine.memory.pool.hits, engine.memory.pool.used) == (shared, 0)


def test_pictures_inside_a_prefix_are_skipped_though_their_features_are_gone() -> None:
    """The second turn of a conversation shows one more picture: it alone is encoded."""
    for family in ("qwen2_5_vl", "qwen3_vl"):
        model = tiny.model(family)
        both = prompt_of(family, "images", QUESTION)
        end = int((both["input_ids"][0] == tiny.VISION_END).nonzero()[0]) + 2
        assert end == 3 * SLOTS
        first = {
            **{name: both[name][:, :end] for name in ("input_ids", "attention_mask")},
            "mm_token_type_ids": both["mm_token_type_ids"][:, :end],
            "pixel_values": both["pixel_values"][:24],
            "image_grid_thw": both["image_grid_thw"][:1],
        }
        engine = sooner.Engine(model, pages=60)
        engine.memory.features.limit = 0
        answer(engine, first, media_keys=["one"])
        patches: list[int] = []
        hook = model.model.visual.register_forward_pre_hook(
            lambda module, args, patches=patches: patches.append(len(args[0]))
        )
        request = answer(engine, both, media_keys=["one", "two"])
        hook.remove()
        assert (request.cached_tokens, patches) == (3 * SLOTS, [24])
        assert request.tokens == [alone(family, "images", QUESTION, 1)[0][:9]]


@PLACES
def test_what_only_looks_alike_is_not_shared(paged: bool) -> None:
    """Other pixels behind the same ids; the same content cut into another grid (M-RoPE)."""
    family = "qwen2_5_vl"
    model = tiny.model(family)
    inputs = prompt_of(family, "image", QUESTION)
    start = int((inputs["input_ids"][0] == tiny.IMAGE).nonzero()[0])
    pixels = {**inputs, "pixel_values": inputs["pixel_values"].flip(0)}
    grid = {**inputs, "image_grid_thw": torch.tensor([[1, 6, 4]])}
    for other, keys in ((pixels, []), (grid, []), (grid, ["same"]), (pixels, ["other"])):
        engine = sooner.Engine(model, pages=60, paged=paged)
        answer(engine, inputs, media_keys=["same"] if keys else [])
        with torch.inference_mode():
            expected = model.generate(**other, max_new_tokens=9, **GREEDY)
        request = answer(engine, other, media_keys=keys)
        assert request.cached_tokens <= start
        assert request.tokens == expected[:, other["input_ids"].shape[1] :].tolist()


NOT_SHARED = {
    "eagle": "listens to the states of the whole prompt",
    "parallel": "listens to the whole prompt",
}


@pytest.mark.parametrize("name", NOT_SHARED)
def test_methods_that_listen_to_a_prompt_share_nothing_and_report_it(name: str) -> None:
    shares_nothing("qwen2_5_vl", METHODS[name]("qwen2_5_vl"), NOT_SHARED[name])


def shares_nothing(
    family: str, method: sooner.Method, reason: str, tail: tuple[int, ...] = QUESTION
) -> None:
    """Checks that an engine prefills a prompt that comes twice as a whole, for a reason."""
    engine = sooner.Engine(tiny.model(family), method, pages=80)
    for _ in range(2):
        request = engine.add_request(prompt_of(family, "video", tail), max_new_tokens=9, **GREEDY)
        notes: list[str] = []
        while not engine.is_idle:
            engine.step()
            if engine.batch is not None:
                notes = engine.batch.stats.notes
        assert request.cached_tokens == 0
        assert request.tokens == [alone(family, "video", tail, 1)[0][:9]]
        assert any(reason in note for note in notes), notes


@PLACES
def test_a_clip_behind_another_question_is_not_encoded_again(paged: bool) -> None:
    """Nothing of the text is shared; features are known by their content."""
    for family in ("llava_onevision", "qwen2_5_vl", "qwen3_vl"):
        model = tiny.model(family)
        engine = sooner.Engine(model, pages=60, paged=paged)
        inputs = prompt_of(family, "mixed", QUESTION)
        other = {**inputs, "input_ids": inputs["input_ids"].clone()}
        other["input_ids"][0, 0] = 77
        with torch.inference_mode():
            wanted = model.generate(**other, max_new_tokens=9, **GREEDY)
        answer(engine, inputs)
        with counted(model) as count:
            request = answer(engine, other)
        assert (request.cached_tokens, count.encoded) == (0, 0)
        assert request.tokens == wanted[:, other["input_ids"].shape[1] :].tolist()


@PLACES
def test_an_answer_is_part_of_the_next_prompt(paged: bool) -> None:
    """A conversation goes on: what was said is not prefilled either."""
    family = "qwen2_5_vl"
    model = tiny.model(family)
    engine = sooner.Engine(model, pages=60, paged=paged)
    inputs = prompt_of(family, "video", QUESTION)
    first = answer(engine, inputs, max_new_tokens=23)
    more = (*QUESTION, *first.tokens[0], *OTHER)
    width = inputs["input_ids"].shape[1] + 22  # the last token is in no slot
    second = answer(engine, prompt_of(family, "video", more))
    assert second.cached_tokens == width // SLOTS * SLOTS
    assert second.tokens == [alone(family, "video", more, 1)[0][:9]]
