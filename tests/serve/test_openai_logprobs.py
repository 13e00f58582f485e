"""Log-probabilities of answers: in OpenAI's form, and those of the model's own forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from serve.chatting import HELLO, ask_sync, chunks
from serve.real_service import serving, shaken, target
from serve.spoken import byte_fallback, byte_level
from sooner import PromptLookup, Speculative
from sooner.engine.request import TokenLogprobs
from sooner.serve.openai.answers import TokenTexts
from sooner.serve.openai.choice import OutputToken

NEW, TOP = 40, 4
CLOSE = {"rtol": 0.0, "atol": 2e-4}
METHODS: dict[str, Any] = {
    "prompt-lookup": lambda: PromptLookup(num_draft_tokens=4),
    "speculative": lambda: Speculative(shaken(), num_draft_tokens=4),
}
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "frequency_penalty": -0.06},
    "drawn": {"temperature": 0.6, "seed": 3, "frequency_penalty": -1.5},
}
"""What was said is said again, so that it can be drafted; log-probabilities know of no penalty."""


def forward(prompt: list[int], output: list[int]) -> torch.Tensor:
    """Log-probabilities of what follows the prompt and each token but the last, by HF itself:
    `[tokens, vocab]`."""
    with torch.no_grad():
        logits = target()(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(-1)


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", METHODS)
def test_logprobs_are_those_of_the_models_plain_forward(name: str, sampling: str) -> None:
    messages = [{"role": "user", "content": "the end, the end, the e"}]
    body = {
        "messages": messages, "max_tokens": NEW, "ignore_eos": True, "logprobs": True,
        "top_logprobs": TOP, "return_token_origins": True, **SAMPLING[sampling],
    }  # fmt: skip
    with serving(METHODS[name]()) as service:
        response = ask_sync(service, body).json()
    [choice] = response["choices"]
    drafts = response["metrics"]["speculative_decoding"]
    assert 0 < drafts["num_accepted_draft_tokens"] < drafts["num_draft_tokens"]
    output = [item["id"] for item in choice["token_origins"]]
    prompt = byte_level().apply_chat_template(messages, add_generation_prompt=True)
    reference = forward(prompt["input_ids"], output)
    rows = choice["logprobs"]["content"]
    told = torch.tensor([row["logprob"] for row in rows])
    expected = reference.gather(1, torch.tensor(output)[:, None])[:, 0]
    is_text = torch.tensor([token != byte_level().eos_token_id for token in output])
    assert len(output) == NEW
    torch.testing.assert_close(told, expected[is_text], **CLOSE)


@pytest.mark.parametrize("name", METHODS)
def test_chats_tell_ids_bytes_and_the_likeliest_tokens(name: str) -> None:
    body = {
        **HELLO, "max_tokens": NEW, "temperature": 0, "logprobs": True, "top_logprobs": TOP,
        "return_token_origins": True, "n": 2,
    }  # fmt: skip
    with serving(METHODS[name]()) as service:
        response = ask_sync(service, body).json()
        stream = chunks(ask_sync(service, {**body, "stream": True}))
    prompt = byte_level().apply_chat_template(HELLO["messages"], add_generation_prompt=True)
    for choice in response["choices"]:
        output = [entry["id"] for entry in choice["token_origins"]]
        reference = forward(prompt["input_ids"], output)
        rows = choice["logprobs"]["content"]
        assert len(rows) == len(output) - (choice["finish_reason"] == "stop")
        for token, line, row in zip(output, reference, rows, strict=False):
            assert row["logprob"] == pytest.approx(float(line[token]), abs=2e-4)
            assert len(row["top_logprobs"]) == TOP
            best = [entry["logprob"] for entry in row["top_logprobs"]]
            torch.testing.assert_close(torch.tensor(best), line.topk(TOP).values, **CLOSE)
        mine = [two for piece in stream for two in piece["choices"]
                if two["index"] == choice["index"]]  # fmt: skip
        streamed = [two["logprobs"]["content"] for two in mine if two["logprobs"]]
        assert [entry for content in streamed for entry in content] == rows
        assert mine[0]["logprobs"] is None  # the role's


def report(ids: list[int]) -> list[OutputToken]:
    return [
        OutputToken(token, False, TokenLogprobs(token, -0.5, [(token, -0.5), (65, -2.0)]), False,
                  is_first=not place)
        for place, token in enumerate(ids)
    ]  # fmt: skip


@given(some.text(some.sampled_from("ab the.é漢🦊\x00\n\u00a0"), max_size=12), some.booleans())
def test_bytes_of_the_tokens_are_the_bytes_of_the_text(text: str, falls_back: bool) -> None:
    tokenizer = byte_fallback() if falls_back else byte_level()
    ids = tokenizer(text, add_special_tokens=False).input_ids
    whole = tokenizer.decode(ids)
    rows = TokenTexts(tokenizer).logprobs(report(ids))["content"]
    assert b"".join(bytes(row["bytes"] or []) for row in rows).decode() == whole
