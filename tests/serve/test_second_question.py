"""A second question about the same pixels, over HTTP: what the model is asked to compute for it."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from PIL import Image

from serve.test_chat_run import Running, running
from sooner import miniatures
from sooner.tasks.loading import Loaded, ModelPair, load_pair

pytestmark = [
    pytest.mark.lab,
    pytest.mark.random_order(disabled=True),
]  # its tests share a server, whose state they count
PAGE = 256
QUESTIONS = ("describe the scenes in order .", "what comes last ?")


@pytest.fixture(scope="module")
def target() -> Loaded:
    return load_pair(None).target


@pytest.fixture(scope="module")
def server(target: Loaded) -> Iterator[Running]:
    with running(ModelPair(target), method="plain", max_rows=2) as one:
        yield one


class Counted:
    """Forwards of the vision tower, and tokens of each forward of the decoder."""

    def __init__(self) -> None:
        self.encoded = 0
        self.tokens: list[int] = []

    @property
    def prefilled(self) -> int:
        """Tokens of a prompt: a round of plain decoding forwards one."""
        return sum(tokens for tokens in self.tokens if tokens > 1)


@contextmanager
def counted(target: Loaded) -> Iterator[Counted]:
    count, model = Counted(), target.model

    def encode(tower: Any, args: Any, options: Any) -> None:
        count.encoded += 1

    def forward(layer: Any, args: Any, options: Any) -> None:
        states = args[0] if args else options["hidden_states"]
        count.tokens.append(states.shape[1])

    tower, layer = model.model.vision_tower, model.get_decoder().layers[0]
    hooks = [
        tower.register_forward_pre_hook(encode, with_kwargs=True),
        layer.register_forward_pre_hook(forward, with_kwargs=True),
    ]
    try:
        yield count
    finally:
        for hook in hooks:
            hook.remove()


def clip(name: str = "video") -> dict[str, Any]:
    sample = miniatures.find(name).sample
    assert sample is not None
    data = base64.b64encode(sample.read_bytes()).decode()
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{data}"}}


def picture(color: str) -> dict[str, Any]:
    made = io.BytesIO()
    Image.new("RGB", (96, 64), color).save(made, "PNG")
    data = base64.b64encode(made.getvalue()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def ask(server: Running, *parts: dict[str, Any], **more: Any) -> Any:
    options: dict[str, Any] = {"max_tokens": 6, "temperature": 0.0, "seed": 1, **more}
    messages = [{"role": "user", "content": list(parts)}]
    return server.client.chat.completions.create(model="tiny", messages=messages, **options)


def cached(told: Any) -> int:
    return told.usage.prompt_tokens_details.cached_tokens


def metric(server: Running, name: str) -> float:
    lines = httpx.get(f"{server.address}/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith(f"sooner:{name}{{")]
    return float(line.split()[-1])


def test_a_second_question_on_a_clip_pays_no_vision_and_no_prefill_of_it(
    server: Running, target: Loaded
) -> None:
    hits, queries = (metric(server, f"prefix_cache_{name}_total") for name in ("hits", "queries"))
    with counted(target) as first:
        told = ask(server, clip(), text(QUESTIONS[0]))
    assert (cached(told), first.prefilled) == (0, told.usage.prompt_tokens)
    assert first.encoded > 0
    processed = server.server.prompts.processed
    made, reused = processed.made, processed.reused
    with counted(target) as second:
        again = ask(server, clip(), text(QUESTIONS[1]))
    assert second.encoded == 0
    assert (processed.made, processed.reused) == (made, reused + 1)
    shared = cached(again)
    assert shared == PAGE  # which is most of the clip
    assert second.prefilled == again.usage.prompt_tokens - shared < 30
    assert metric(server, "prefix_cache_hits_total") - hits == shared
    asked = told.usage.prompt_tokens + again.usage.prompt_tokens
    assert metric(server, "prefix_cache_queries_total") - queries == asked
    assert metric(server, "pages_used") == metric(server, "kv_cache_usage_perc") == 0
    assert metric(server, "pages") > 0
    with running(ModelPair(target), method="plain", prefix_caching=False) as other:
        alone = [ask(other, clip(), text(said)) for said in QUESTIONS]
    assert [cached(one) for one in alone] == [0, 0]
    said = [one.choices[0].message.content for one in (told, again)]
    assert said == [one.choices[0].message.content for one in alone]


def test_pictures_at_other_places_are_known_by_their_content(
    server: Running, target: Loaded
) -> None:
    """What stands before them differs, so they are prefilled; the tower has seen them."""
    red, blue = picture("red"), picture("blue")
    ask(server, red, text("what is this ?"))
    with counted(target) as one:
        ask(server, text("look at both ."), blue, text("and"), red)
    assert one.encoded == 1, "of blue alone"
    with counted(target) as none:
        told = ask(server, text("and once more ."), red, text("and"), blue)
    assert none.encoded == 0
    assert none.prefilled == told.usage.prompt_tokens - cached(told)
