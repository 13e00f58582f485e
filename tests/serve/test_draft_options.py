"""Drafts of single requests: their own length, what is counted of them, and less under load."""

from __future__ import annotations

from typing import Any

import pytest

from serve.chatting import HELLO, ask_sync, error_of, scripted, served
from serve.job_listener import until
from serve.real_service import serving, shaken
from sooner import HSD, PromptLookup, SDTree, Speculative
from sooner.methods.sd_tree import STATIC_TREE

NEW = 40
MESSAGES = [{"role": "user", "content": "the end, the end, the e"}]
BODY = {"messages": MESSAGES, "max_tokens": NEW, "ignore_eos": True,
        "temperature": 0, "frequency_penalty": -0.06}  # fmt: skip
METHODS: dict[str, Any] = {
    "prompt-lookup": lambda: PromptLookup(num_draft_tokens=6),
    "speculative": lambda: Speculative(shaken(), num_draft_tokens=5),
    "sd-tree": lambda: SDTree(shaken(), STATIC_TREE),
    "hsd": lambda: HSD(drafts=[[]], nodes=8),
}


def drafts_of(response: Any) -> dict[str, Any]:
    return dict(response["metrics"]["speculative_decoding"])


@pytest.mark.parametrize("name", METHODS)
def test_a_request_may_limit_its_drafts(name: str) -> None:
    method = METHODS[name]()
    model = served(method=method)
    with serving(method) as service:
        body = dict(BODY)
        if name == "hsd":
            text = ask_sync(service, body, model=model).json()["choices"][0]["message"]["content"]
            body["prediction"] = {"type": "content", "content": text}
        whole, few, none = (
            ask_sync(service, {**body, **limit}, model=model).json()
            for limit in ({}, {"num_draft_tokens": 2}, {"num_draft_tokens": 0})
        )
    texts = {response["choices"][0]["message"]["content"] for response in (whole, few, none)}
    assert len(texts) == 1
    assert drafts_of(none)["num_draft_tokens"] == 0
    assert drafts_of(none)["num_spec_steps"] == NEW - 1
    assert drafts_of(few)["num_draft_tokens"] > 0
    assert len(drafts_of(few)["acceptance_histogram"]) <= 3
    if name in ("prompt-lookup", "speculative"):
        assert len(drafts_of(whole)["acceptance_histogram"]) > 3


WRONG = [-1, 1.5, "2", True, 6, 1 << 64]


@pytest.mark.parametrize("value", WRONG)
def test_wrong_lengths_are_refused_with_their_field(value: Any) -> None:
    model = served(method=PromptLookup(num_draft_tokens=5))
    with scripted() as service:
        answer = ask_sync(service, {**HELLO, "num_draft_tokens": value}, model=model)
        assert not service.requests
        assert (answer.status_code, error_of(answer)["param"]) == (400, "num_draft_tokens")
        ask_sync(service, {**HELLO, "num_draft_tokens": 5}, model=model)
        assert service.requests[0].options.num_draft_tokens == 5


@pytest.mark.parametrize("name", ["prompt-lookup", "speculative", "sd-tree"])
def test_counts_are_true_where_a_stop_string_ends_an_answer(name: str) -> None:
    with serving(METHODS[name]()) as service:
        text = ask_sync(service, BODY).json()["choices"][0]["message"]["content"]
        half = len(text) // 2
        body = {**BODY, "stop": text[half : half + 3], "return_token_origins": True}
        response = ask_sync(service, body).json()
        until(lambda: service.load().running == 0)
        metrics = service.listener  # of the last server
    drafts, [choice] = drafts_of(response), response["choices"]
    counted = {
        item: metrics.registry.get_sample_value(f"sooner:spec_decode_num_{item}_total",
                                               {"model_name": "tiny"})
        for item in ("drafts", "draft_tokens", "accepted_tokens")
    }  # fmt: skip
    histogram = drafts["acceptance_histogram"]
    assert sum(histogram) == drafts["num_spec_steps"] > 0
    accepted = sum(many * rounds for many, rounds in enumerate(histogram))
    assert drafts["num_accepted_draft_tokens"] == accepted <= drafts["num_draft_tokens"]
    origins = [item["origin"] for item in choice["token_origins"]]
    assert len(origins) == response["usage"]["completion_tokens"] < NEW
    assert 0 <= accepted - origins.count("draft") <= max(len(histogram) - 1, 0)  # the last round's
    assert counted["draft_tokens"] >= drafts["num_draft_tokens"]  # it ended a little later
    assert counted["accepted_tokens"] >= accepted
