"""What OpenAI's paths answer: whole, and as streams."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest

from serve.chatting import CHAT, HELLO, ask_sync, chunks, scripted, talking
from serve.robots import WAIT
from serve.spoken import byte_level, ids_of
from sooner import HSD
from sooner.serve.openai import answers
from sooner.serve.openai.answers import num_appearing


def test_an_answer_has_its_text_its_usage_and_its_metrics() -> None:
    with scripted("the quick brown fox") as service:
        answer = ask_sync(service, {**HELLO, "model": "org/tiny"}, headers={"X-Request-Id": "abc"})
    body = answer.json()
    assert answer.status_code == 200
    assert answer.headers["x-request-id"] == "abc"
    assert (body["id"], body["object"], body["model"]) == (
        "chatcmpl-abc", "chat.completion", "org/tiny",
    )  # fmt: skip
    [choice] = body["choices"]
    assert choice["message"] == {
        "role": "assistant", "content": "the quick brown fox", "refusal": None,
    }  # fmt: skip
    assert choice["finish_reason"] == "stop"
    num_tokens = len(ids_of("the quick brown fox")) + 1
    prompt = service.requests[0].prompt_tokens
    assert body["usage"] == {
        "prompt_tokens": prompt, "completion_tokens": num_tokens,
        "total_tokens": prompt + num_tokens,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip
    drafts = body["metrics"]["speculative_decoding"]
    steps = -(-num_tokens // 3)
    assert drafts == {
        "mode": "exact", "num_spec_steps": steps, "num_draft_tokens": 2 * steps,
        "num_accepted_draft_tokens": 2 * steps, "draft_acceptance_rate": 1.0,
        "mean_acceptance_length": 3.0, "acceptance_histogram": [0, 0, steps],
    }  # fmt: skip


def test_a_stream_has_the_role_first_and_the_usage_last() -> None:
    with scripted("the fox: 漢字 🦊") as service:
        options = {"include_usage": True}
        events = chunks(ask_sync(service, {**HELLO, "stream": True, "stream_options": options}))
    first, *middle, last, usage = events
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert all(chunk["usage"] is None for chunk in events[:-1])
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in [first, *middle])
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in [*middle, last])
    assert text == "the fox: 漢字 🦊"
    assert last["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == len(ids_of(text)) + 1
    assert usage["metrics"]["speculative_decoding"]["num_spec_steps"] > 0
    assert len({(chunk["id"], chunk["created"], chunk["object"]) for chunk in events}) == 1
    assert events[0]["object"] == "chat.completion.chunk"


BODIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "stop": {"stop": ["STOP", "brown f"]},
    "choices": {"n": 3, "stop": "fox"},
    "limit": {"max_tokens": 7},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "origins": {"return_token_origins": True, "stop": "fox"},
}


@pytest.mark.parametrize("blocks", [(1,), (4,), (2, 7, 1), (100,)])
@pytest.mark.parametrize("name", BODIES)
def test_a_stream_has_the_content_of_an_answer(name: str, blocks: tuple[int, ...]) -> None:
    script = "the quick 漢字 brown fox, naïve 🦊🦊 café STOP it"
    with scripted(script, blocks=blocks) as service:
        whole = ask_sync(service, {**HELLO, **BODIES[name]}).json()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        events = chunks(ask_sync(service, {**HELLO, **BODIES[name], **options}))
        assert "cancelled" not in {request.finish_reason for request in service.requests}
    assert events[-1]["usage"] == whole["usage"]
    for choice in whole["choices"]:
        mine = [
            piece for chunk in events[:-1] for piece in chunk["choices"]
            if piece["index"] == choice["index"]
        ]  # fmt: skip
        assert choice["message"]["content"] == "".join(
            piece["delta"].get("content", "") for piece in mine
        )
        assert [piece["finish_reason"] for piece in mine if piece["finish_reason"]] == [
            choice["finish_reason"]
        ]
        if name == "logprobs":
            streamed = [piece["logprobs"]["content"] for piece in mine if piece["logprobs"]]
            joined = [row for content in streamed for row in content]
            assert joined == choice["logprobs"]["content"]
        if name == "origins":
            assert choice["token_origins"] == [
                row for piece in mine for row in piece["token_origins"]
            ]
    assert "�" not in json.dumps(events, ensure_ascii=False)


def test_the_engine_gets_the_options_of_a_request() -> None:
    end = byte_level().eos_token_id
    body = {
        **HELLO, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "seed": -3,
        "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 0.5,
        "logit_bias": {"5": -100, "6": 1.5}, "max_tokens": 9, "max_completion_tokens": 4,
        "stop_token_ids": [77], "logprobs": True, "top_logprobs": 3,
        "prediction": {"type": "content", "content": [{"type": "text", "text": "the fox"}]},
    }  # fmt: skip
    with scripted("the fox") as service:
        answer = ask_sync(service, body)
        assert answer.status_code == 200
        [request] = service.requests
    options = request.options
    assert options.sampling == {
        "do_sample": True, "temperature": 0.5, "top_p": 0.9, "top_k": 0, "min_p": 0.1,
        "repetition_penalty": 1.1, "presence_penalty": -1, "frequency_penalty": 0.5,
        "sequence_bias": {(5,): -100.0, (6,): 1.5}, "max_new_tokens": 4,
        "eos_token_id": sorted({77, end}),
    }  # fmt: skip
    assert (options.seed, options.logprobs) == ((1 << 63) - 3, 3)
    assert request.stop_token_ids == {77, end}
    assert isinstance(request.method, HSD)
    assert request.method.drafts == (((tuple(ids_of("the fox")),),),)
    assert answer.json()["usage"]["completion_tokens_details"] == {
        "accepted_prediction_tokens": min(4, len(ids_of("the fox"))),
        "rejected_prediction_tokens": max(len(ids_of("the fox")) - 4, 0),
    }


def test_tokens_of_a_prediction_that_an_answer_has_are_accepted() -> None:
    for prediction, answer, count in (
        ("abcdef", "..abcdef..", 6), ("abcdef", "abcXdef", 6), ("abcdef", "abXcdXef", 0),
        ("ab", "zabz", 2), ("abcabc", "abc", 3), ("abc", "", 0), ("", "abc", 0), ("abc", "a", 1),
    ):  # fmt: skip
        assert num_appearing([*map(ord, prediction)], [*map(ord, answer)]) == count


@pytest.mark.parametrize("stream", [False, True])
def test_predictions_are_counted_beside_the_event_loop(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()

    def count(prediction: list[int], ids: list[int]) -> int:
        begun.set()
        assert go.wait(10)
        return 0

    monkeypatch.setattr(answers, "num_appearing", count)
    body = {
        **HELLO,
        "stream": stream,
        "stream_options": {"include_usage": True} if stream else None,
    }

    async def scenario() -> httpx.Response:
        with scripted() as service:
            async with talking(service) as client:
                answer = asyncio.create_task(client.post(CHAT, json=body))
                assert await asyncio.to_thread(begun.wait, WAIT)
                assert (await client.get("/health")).status_code == 200
                go.set()
                return await answer

    assert '"completion_tokens"' in asyncio.run(scenario()).text


def test_usage_is_told_to_those_who_ask() -> None:
    with scripted() as service:
        told = chunks(ask_sync(service, {**HELLO, "stream": True}))
    assert all(chunk["choices"] and "usage" not in chunk for chunk in told)
