"""Calls of tools and reasoning, read by the tokenizer's template or forced by a grammar."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from serve.chatting import (
    CHAT,
    HELLO,
    ScriptedService,
    chunks,
    scripted,
    served,
    talking,
    with_template,
)
from serve.spoken import RESPONSE_TEMPLATE, byte_level
from sooner.serve.openai.choice import AnswerParsers, AnswerPiece
from sooner.serve.openai.protocol import ChatRequest

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern, 漢"}}\n</tool_call>'
OTHER = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
BROKEN = '<tool_call>{"name": "weather", "argum</tool_call>'


def request(**fields: Any) -> ChatRequest:
    return ChatRequest.model_validate({**HELLO, "tools": [WEATHER], **fields})


def parsed(
    text: str, cuts: list[int], chat_request: ChatRequest, template: Any = RESPONSE_TEMPLATE
) -> Any:
    """Content, reasoning and calls of a text that comes in pieces."""
    parser = AnswerParsers(with_template(template)).of(chat_request, [])
    pieces: list[AnswerPiece] = []
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for start, end in itertools.pairwise(places):
        pieces += parser.add(text[start:end])
    pieces += parser.end()
    texts = {
        kind: "".join(piece.text for piece in pieces if piece.kind == kind)
        for kind in ("content", "reasoning")
    }
    calls: list[list[str]] = []
    for piece in pieces:
        if piece.kind == "call":
            if piece.name is not None:
                assert piece.call == len(calls)
                calls.append([piece.name, ""])
            calls[piece.call][1] += piece.text
    return texts["content"], texts["reasoning"], [(name, json.loads(text)) for name, text in calls]


TEXTS: dict[str, tuple[str, Any]] = {
    "content": (" Sunny  today. ", ("Sunny  today.", "", [])),
    "reasoning": ("<think>\nwell, 漢\n</think>\n\nYes.", ("Yes.", "well, 漢", [])),
    "call": (CALL, ("", "", [("weather", {"city": "Bern, 漢"})])),
    "calls": (
        f"Let me see.\n{CALL}\n{OTHER}",
        ("Let me see.", "", [("weather", {"city": "Bern, 漢"}), ("clock", {})]),
    ),
    "all": (
        f"<think>a < b</think>I ask: {OTHER} <tool",
        ("I ask: <tool", "a < b", [("clock", {})]),
    ),
    "broken": (f"Hm. {BROKEN} on", (f"Hm. {BROKEN} on", "", [])),
    "cut": ('Hm.<tool_call>{"name": "wea', ('Hm.<tool_call>{"name": "wea', "", [])),
    "no call": ("<tool_call>[5]</tool_call>", ("<tool_call>[5]</tool_call>", "", [])),
    "nearly": ("a <tool_cat> b", ("a <tool_cat> b", "", [])),
}


@pytest.mark.parametrize("name", TEXTS)
@given(cuts=some.lists(some.integers(0, 120), max_size=20))
def test_an_answer_is_read_the_same_however_it_is_cut(name: str, cuts: list[int]) -> None:
    text, expected = TEXTS[name]
    content, reasoning, calls = parsed(text, cuts, request())
    assert (content.strip(), reasoning, calls) == (expected[0].strip(), *expected[1:])


def test_forced_calls_are_read_from_json() -> None:
    named = request(tool_choice={"type": "function", "function": {"name": "weather"}})
    assert parsed('{"city": "Bern"}', [3, 5], named) == ("", "", [("weather", {"city": "Bern"})])
    needed = request(tool_choice="required")
    text = '[{"name": "weather", "parameters": {"city": "漢"}}]'
    assert parsed(text, [3, 5], needed) == ("", "", [("weather", {"city": "漢"})])
    assert parsed(text[:20], [3], needed) == (text[:20], "", [])


# Through the server.


def ask_sync(service: ScriptedService, body: dict[str, Any]) -> Any:
    async def run() -> Any:
        async with talking(service, served(response_template=RESPONSE_TEMPLATE)) as client:
            return await client.post(CHAT, json={**HELLO, "tools": [WEATHER], **body})

    return asyncio.run(run())


@pytest.mark.parametrize("blocks", [(1,), (5,), (200,)])
def test_calls_have_the_form_of_openai(blocks: tuple[int, ...]) -> None:
    with scripted(f"<think>hm</think>Wait.\n{CALL}\n{OTHER}", blocks=blocks) as service:
        [choice] = ask_sync(service, {}).json()["choices"]
        events = chunks(ask_sync(service, {"stream": True}))
        prompt = byte_level().decode(service.requests[0].inputs["input_ids"][0])
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert (message["content"], message["reasoning_content"]) == ("Wait.", "hm")
    calls = message["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["weather", "clock"]
    assert json.loads(calls[0]["function"]["arguments"]) == {"city": "Bern, 漢"}
    assert all(call["id"].startswith("call_") and call["type"] == "function" for call in calls)
    assert '"name": "weather"' in prompt  # the template was told of the tool

    deltas = [part for chunk in events for part in chunk["choices"]]
    assert deltas[-1]["finish_reason"] == "tool_calls"
    pieces = [call for part in deltas for call in part["delta"].get("tool_calls", [])]
    assert [(part["index"], part["function"]) for part in pieces] == [
        (index, call["function"]) for index, call in enumerate(calls)
    ]
    for key in ("content", "reasoning_content"):
        assert "".join(part["delta"].get(key, "") for part in deltas) == message[key]


def test_tools_that_can_not_be_are_refused() -> None:
    named = {"type": "function", "function": {"name": "other"}}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"tool_choice": named}, "tool_choice.function.name"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tool_choice": "required", "response_format": {"type": "json_object"}},
            "response_format",
        ),
    ]
    with scripted() as service:
        for body, field in wrong:
            answer = ask_sync(service, body)
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] == field
        assert not service.requests
