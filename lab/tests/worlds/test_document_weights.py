"""The shipped parser and its draft: real classes, honest cards, pages read right."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers import Qwen3VLForConditionalGeneration

from sooner import miniatures
from sooner.tasks.parse.families import family_in_folder
from sooner_lab.worlds.document import evaluate, world

DOCUMENT = miniatures.find("document")
TEST_SEED = 4_000_000


@pytest.fixture(scope="module")
def target() -> tuple[Any, Any]:
    return evaluate.load(DOCUMENT.target)


@pytest.fixture(scope="module")
def draft() -> tuple[Any, Any]:
    assert DOCUMENT.draft is not None
    return evaluate.load(DOCUMENT.draft)


def test_real_class_deep_and_narrow(target: tuple[Any, Any], draft: tuple[Any, Any]) -> None:
    for (model, _), layers in ((target, 48), (draft, 8)):
        assert isinstance(model, Qwen3VLForConditionalGeneration)
        text = model.config.text_config
        assert (text.num_hidden_layers, text.hidden_size) == (layers, 128)


def test_the_card_is_of_this_checkpoint(target: tuple[Any, Any]) -> None:
    card = json.loads((DOCUMENT.target / "card.json").read_text())
    assert card["parameters"] == sum(weights.numel() for weights in target[0].parameters())
    assert card["accuracy"]["page"]["words"] >= 0.97


def test_unseen_pages_are_read(target: tuple[Any, Any]) -> None:
    assert evaluate.measure(*target, TEST_SEED, 4)["words"] >= 0.97


def test_unseen_blocks_are_read_by_the_draft(draft: tuple[Any, Any]) -> None:
    assert evaluate.measure(*draft, TEST_SEED, 8, (5, 16))["words"] >= 0.97


def test_the_sample_is_read(target: tuple[Any, Any]) -> None:
    assert DOCUMENT.sample is not None
    info = json.loads(DOCUMENT.sample.with_suffix(".json").read_text())
    picture = np.asarray(Image.open(DOCUMENT.sample).convert("RGB"))
    assert evaluate.parse(*target, [picture]) == [info["markdown"]]


def test_the_folder_names_what_it_was_trained_on() -> None:
    trained = family_in_folder(str(DOCUMENT.target))
    assert trained.size == (512, 640)
    assert trained.ask.page == DOCUMENT.prompt


def test_word_accuracy_counts_edits() -> None:
    page = world.sample_page(np.random.default_rng(2), 4, 16)
    truth = page.markdown.split()
    assert evaluate.score([page.markdown], [page]) == {"words": 1.0, "pages": 1.0}
    wrong = " ".join(["nonsense", *truth[1:]])
    assert evaluate.score([wrong], [page])["words"] == pytest.approx(1 - 1 / len(truth), abs=1e-4)
    assert evaluate.score([""], [page])["words"] == 0
    assert evaluate.distance("kitten", "sitting") == 3
