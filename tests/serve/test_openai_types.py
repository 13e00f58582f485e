"""Answers and chunks against OpenAI's own types, as its package has them, and against its page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from serve.chatting import HELLO, ask_sync, chunks, scripted, served
from serve.spoken import RESPONSE_TEMPLATE
from serve.test_openai_tools import CALL, WEATHER

openai = pytest.importorskip("openai")
chat = pytest.importorskip("openai.types.chat")

OURS = {"metrics", "token_origins"}
"""Fields that OpenAI's answers do not have; docs/serve.md tells of each."""
SCRIPT = "the quick 漢字 brown fox, naïve 🦊🦊 café STOP it"
CHATS: dict[str, dict[str, Any]] = {
    "plain": {},
    "choices": {"n": 3, "stop": "fox"},
    "limit": {"max_tokens": 3},
    "logprobs": {"logprobs": True, "top_logprobs": 3, "n": 2},
    "origins": {"return_token_origins": True},
    "tools": {"tools": [WEATHER]},
    "prediction": {"prediction": {"type": "content", "content": "the quick"}},
}


def strictly(kind: Any, data: Any) -> BaseModel:
    """A value of OpenAI's type, read without converting anything."""
    read: BaseModel = kind.model_validate_json(json.dumps(data), strict=True)
    return read


def unknown(read: Any) -> set[str]:
    """Names of fields that OpenAI's types do not have, at any depth."""
    if isinstance(read, list):
        return set().union(*map(unknown, read))
    if not isinstance(read, BaseModel):
        return set()
    inner = [unknown(getattr(read, name)) for name in type(read).model_fields]
    return set(read.model_extra or ()).union(*inner)


def script_of(name: str) -> str:
    return CALL if name == "tools" else SCRIPT


@pytest.mark.parametrize("name", CHATS)
def test_chats_are_of_openais_types(name: str) -> None:
    body = {**HELLO, **CHATS[name]}
    model = served(response_template=RESPONSE_TEMPLATE)
    with scripted(script_of(name)) as service:
        response = ask_sync(service, body, model=model).json()
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        pieces = chunks(ask_sync(service, {**body, **stream}, model=model))
    read: Any = strictly(chat.ChatCompletion, response)
    assert unknown(read) <= OURS
    for choice in response["choices"]:  # what OpenAI's page calls required, null or not
        assert {"index", "message", "logprobs", "finish_reason"} <= set(choice)
        assert {"role", "content", "refusal"} <= set(choice["message"])
        if choice["logprobs"] is not None:
            assert set(choice["logprobs"]) == {"content", "refusal"}
    if name == "tools":
        assert read.choices[0].message.content is None
        assert read.choices[0].finish_reason == "tool_calls"
    for piece in pieces:
        parsed: Any = strictly(chat.ChatCompletionChunk, piece)
        assert unknown(parsed) <= OURS
        assert (parsed.id, parsed.created) == (pieces[0]["id"], pieces[0]["created"])
        assert all({"index", "delta", "finish_reason"} <= set(two) for two in piece["choices"])
    places = {two["index"] for piece in pieces for two in piece["choices"]}
    assert places == {choice["index"] for choice in response["choices"]}
