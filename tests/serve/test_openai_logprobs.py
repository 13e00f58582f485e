"""Log-probabilities of answers: in OpenAI's form, and those of the model's own forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from serve.asking import TEXT, asked, chunks
from serve.chatting import HELLO, scripted
from serve.real_service import serving, shaken, target
from serve.spoken import byte_fallback, byte_level, ids_of
from sooner import PromptLookup, Speculative
from sooner.serve.following import Following
from sooner.serve.jobs import TokenLogprob
from sooner.serve.openai.choice import ToldToken
from sooner.serve.openai.logprobs import TokenTexts

NEW, TOP = 40, 4
CLOSE = {"rtol": 0.0, "atol": 2e-4}
METHODS: dict[str, Any] = {
    "prompt-lookup": lambda: Following(PromptLookup(num_draft_tokens=4)),
    "speculative": lambda: Following(Speculative(shaken(), num_draft_tokens=4)),
}
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "frequency_penalty": -0.06},
    "drawn": {"temperature": 0.6, "seed": 3, "frequency_penalty": -1.5},
}
"""What was said is said again, so that it can be drafted; log-probabilities know of no penalty."""


def forward(prompt: list[int], said: list[int]) -> torch.Tensor:
    """Log-probabilities of what follows the prompt and each token but the last, by HF itself:
    `[tokens, vocab]`."""
    with torch.no_grad():
        logits = target()(torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1]
    return logits.float().log_softmax(-1)


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("name", METHODS)
def test_logprobs_are_those_of_the_models_own_forward(name: str, sampling: str) -> None:
    body = {
        "prompt": "the end, the end, the e", "max_tokens": NEW, "ignore_eos": True,
        "logprobs": TOP, "return_token_origins": True, **SAMPLING[sampling],
    }  # fmt: skip
    with serving(METHODS[name]()) as service:
        told = asked(service, body, TEXT).json()
        stream = chunks(asked(service, {**body, "stream": True}, TEXT))
    [choice] = told["choices"]
    drafts = told["metrics"]["speculative_decoding"]
    assert 0 < drafts["num_accepted_draft_tokens"] < drafts["num_draft_tokens"]
    said = [one["id"] for one in choice["token_origins"]]
    own = forward(ids_of(body["prompt"]), said)
    found = choice["logprobs"]
    assert len(said) == NEW == len(found["tokens"])
    wanted = own.gather(1, torch.tensor(said)[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(found["token_logprobs"]), wanted, **CLOSE)
    texts = TokenTexts(byte_level())
    for place, (row, top) in enumerate(zip(own, found["top_logprobs"], strict=True)):
        ids = [*row.topk(TOP).indices.tolist(), said[place]]
        likely = {texts.named(one, not place): float(row[one]) for one in ids}
        assert top == pytest.approx(likely, abs=2e-4)
    for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        streamed = [one for piece in stream for two in piece["choices"]
                    for one in (two["logprobs"] or {key: []})[key]]  # fmt: skip
        assert streamed == found[key], key


@pytest.mark.parametrize("name", METHODS)
def test_chats_tell_ids_bytes_and_the_likeliest_tokens(name: str) -> None:
    body = {
        **HELLO, "max_tokens": NEW, "temperature": 0, "logprobs": True, "top_logprobs": TOP,
        "return_token_origins": True, "n": 2,
    }  # fmt: skip
    with serving(METHODS[name]()) as service:
        told = asked(service, body).json()
        stream = chunks(asked(service, {**body, "stream": True}))
    prompt = byte_level().apply_chat_template(HELLO["messages"], add_generation_prompt=True)
    for choice in told["choices"]:
        said = [one["id"] for one in choice["token_origins"]]
        own = forward(prompt["input_ids"], said)
        rows = choice["logprobs"]["content"]
        assert len(rows) == len(said) - (choice["finish_reason"] == "stop")
        for token, line, row in zip(said, own, rows, strict=False):
            assert row["logprob"] == pytest.approx(float(line[token]), abs=2e-4)
            assert len(row["top_logprobs"]) == TOP
            best = [one["logprob"] for one in row["top_logprobs"]]
            torch.testing.assert_close(torch.tensor(best), line.topk(TOP).values, **CLOSE)
        mine = [two for piece in stream for two in piece["choices"]
                if two["index"] == choice["index"]]  # fmt: skip
        told_so = [two["logprobs"]["content"] for two in mine if two["logprobs"]]
        assert [one for content in told_so for one in content] == rows
        assert mine[0]["logprobs"] is None  # the role's


@pytest.mark.parametrize("blocks", [(1,), (4,), (2, 7, 1), (100,)])
@pytest.mark.parametrize("stop", [None, "fox", "é S"])
def test_streams_and_answers_agree_at_every_split(blocks: tuple[int, ...], stop: Any) -> None:
    body = {"prompt": "a", "n": 2, "stop": stop, "logprobs": 2, "return_token_origins": True}
    with scripted("the 漢字 brown fox, naïve 🦉 café STOP it", blocks=blocks) as service:
        whole = asked(service, body, TEXT).json()["choices"]
        pieces = chunks(asked(service, {**body, "stream": True}, TEXT))
    for choice in whole:
        mine = [one for piece in pieces for one in piece["choices"]
                if one["index"] == choice["index"]]  # fmt: skip
        assert choice["text"] == "".join(one["text"] for one in mine)
        assert choice["token_origins"] == [row for one in mine for row in one["token_origins"]]
        for key, values in choice["logprobs"].items():
            told_so = [one["logprobs"][key] for one in mine if one["logprobs"]]
            assert values == [row for rows in told_so for row in rows], key


def report(ids: list[int]) -> list[ToldToken]:
    return [
        ToldToken(token, False, 0, TokenLogprob(token, -0.5, ((token, -0.5), (65, -2.0))), False,
                  leads=not place)
        for place, token in enumerate(ids)
    ]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(some.text(some.sampled_from("ab the.é漢🦊\x00\n\u00a0"), max_size=12), some.booleans())
def test_bytes_of_the_tokens_are_the_bytes_of_the_text(text: str, falls_back: bool) -> None:
    tokenizer = byte_fallback() if falls_back else byte_level()
    ids = tokenizer(text, add_special_tokens=False).input_ids
    whole = tokenizer.decode(ids)
    rows = TokenTexts(tokenizer).chat_logprobs(report(ids)).content
    assert b"".join(bytes(row["bytes"] or []) for row in rows).decode() == whole
