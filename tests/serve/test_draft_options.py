"""Drafts of single requests: their own length, what is counted of them, and less under load."""

from __future__ import annotations

from typing import Any

import pytest

from serve.chatting import ask_sync
from serve.job_listener import until
from serve.real_service import planned, serving, shaken, target
from serve.spoken import ids_of
from sooner import HSD, Engine, PromptLookup, SDTree, Speculative
from sooner.methods.sd_tree import STATIC_TREE
from sooner.serve.engine_thread import ServedRequest

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
    method, prompt = METHODS[name](), ids_of("the end, the end, the e")
    sampling = {"do_sample": False, "frequency_penalty": -0.06}
    engine = Engine(target(), method, max_rows=2)

    def run(limit: int | None, prediction: list[int] | None = None) -> ServedRequest:
        request = planned(
            method, prompt, NEW, sampling=sampling, num_draft_tokens=limit, prediction=prediction
        )
        engine.add(request)
        engine.run()
        return request

    guess = run(None).tokens[0] if name == "hsd" else None
    whole, few, none = (run(limit, guess) for limit in (None, 2, 0))
    assert whole.tokens == few.tokens == none.tokens
    assert none.num_draft_tokens == 0
    assert few.num_draft_tokens > 0
    if name in ("prompt-lookup", "speculative"):  # the others draft trees
        assert few.num_draft_tokens <= 2 * few.num_drafts
        assert whole.num_draft_tokens > 2 * whole.num_drafts


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
