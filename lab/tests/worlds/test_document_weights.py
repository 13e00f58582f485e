"""The shipped parser and its draft: real classes, honest cards, pages read right."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import Qwen3VLForConditionalGeneration

from sooner import miniatures
from sooner.tasks.parse.families import family_in_folder
from sooner_lab.worlds.document import render, world
from worlds.shallow import shallow_pair

DOCUMENT = miniatures.find("document")
TEST_SEED = 4_000_000


@pytest.fixture(scope="module")
def pair() -> Any:
    return shallow_pair("document")


def read(loaded: Any, pictures: list[np.ndarray]) -> list[str]:
    """What HF's greedy `generate` makes of pictures."""
    content = [{"type": "image"}, {"type": "text", "text": DOCUMENT.prompt}]
    chat = [{"role": "user", "content": content}]
    text = loaded.processor.apply_chat_template(chat, add_generation_prompt=True)
    inputs = loaded.processor(
        text=[text] * len(pictures), images=pictures, return_tensors="pt", padding=True
    )
    made = loaded.model.generate(**inputs, do_sample=False, max_new_tokens=300)
    answers = made[:, inputs["input_ids"].shape[1] :]
    return loaded.processor.batch_decode(answers, skip_special_tokens=True)


def accuracy(loaded: Any, count: int, size: tuple[int, int] = world.PAGE) -> float:
    """Share of the words of unseen pages that are read right, in their order."""
    rng = np.random.default_rng(TEST_SEED)
    pages = [world.sample_page(rng, *size) for _ in range(count)]
    texts = read(loaded, [render.rgb(render.vary(render.draw(page), rng)) for page in pages])
    pairs = [(text.split(), page.markdown.split()) for text, page in zip(texts, pages, strict=True)]
    right = sum(
        block.size
        for text, truth in pairs
        for block in SequenceMatcher(None, text, truth, autojunk=False).get_matching_blocks()
    )
    return right / sum(len(truth) for _, truth in pairs)


def test_real_class_deep_and_narrow(pair: Any) -> None:
    """Eight layers are trained; `test_depth.py` counts those that run."""
    for loaded in (pair.target, pair.draft):
        assert isinstance(loaded.model, Qwen3VLForConditionalGeneration)
        text = loaded.model.config.text_config
        assert (text.num_hidden_layers, text.hidden_size) == (8, 128)


def test_unseen_pages_are_read(pair: Any) -> None:
    card = json.loads((DOCUMENT.target / "card.json").read_text())
    assert card["accuracy"]["page"]["words"] >= 0.97
    assert accuracy(pair.target, 4) >= 0.97


def test_unseen_blocks_are_read_by_the_draft(pair: Any) -> None:
    assert accuracy(pair.draft, 8, (5, 16)) >= 0.97


def test_the_sample_is_read(pair: Any) -> None:
    assert DOCUMENT.sample is not None
    info = json.loads(DOCUMENT.sample.with_suffix(".json").read_text())
    picture = np.asarray(Image.open(DOCUMENT.sample).convert("RGB"))
    assert read(pair.target, [picture]) == [info["markdown"]]


def test_the_folder_names_what_it_was_trained_on() -> None:
    trained = family_in_folder(str(DOCUMENT.target))
    assert trained.size == (512, 640)
    assert trained.ask.page == DOCUMENT.prompt
