"""What the `openai` package builds upon the API: parsed answers, events, raw responses, tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from serve.chatting import HELLO, listening, scripted, served
from serve.spoken import RESPONSE_TEMPLATE
from serve.test_openai_clients import ask, client_of
from serve.test_openai_grammar import grammars
from serve.test_openai_tools import CALL, OTHER, WEATHER

openai = pytest.importorskip("openai")
pytest.importorskip("llguidance")


class Person(BaseModel):
    name: str
    city: Literal["Bern", "Basel"]


SAID = '{"name": "the 漢", "city": "Bern"}'
WHO = Person(name="the 漢", city="Bern")
MESSAGES: Any = HELLO["messages"]


def test_answers_are_parsed_as_pydantic_models() -> None:
    async def run(address: str) -> None:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none") as client:
            told = await client.chat.completions.parse(
                model="tiny", messages=MESSAGES, response_format=Person
            )
            assert told.choices[0].message.parsed == WHO
            async with client.chat.completions.stream(
                model="tiny", messages=MESSAGES, response_format=Person
            ) as stream:
                kinds = [event.type async for event in stream]
                final = await stream.get_final_completion()
            assert final.choices[0].message.parsed == WHO
            assert kinds.count("content.done") == 1
            assert kinds.count("content.delta") > 3

    each = {"stream_interval": 0.0}  # a chunk a block, however quick they come
    with (
        scripted(SAID, blocks=[2], pause=0.002) as service,
        listening(service, grammars=grammars(), settings=each) as address,
    ):
        asyncio.run(run(address))
        assert all(job.grammar is not None for job in service.jobs)


def test_calls_that_stream_are_put_together_again() -> None:
    said = f"Let me see.\n{CALL}\n{OTHER}"
    model = served(response_template=RESPONSE_TEMPLATE)
    clock = {"type": "function", "function": {"name": "clock"}}
    with (
        scripted(said, blocks=[3, 1]) as service,
        listening(service, model) as address,
        client_of(address).chat.completions.stream(
            model="tiny", messages=MESSAGES, tools=[WEATHER, clock]
        ) as stream,
    ):
        done = [one for one in stream if one.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [one.name for one in done] == ["weather", "clock"]
    assert json.loads(done[0].arguments) == {"city": "Bern, 漢"}
    assert final.finish_reason == "tool_calls"
    assert final.message.content.strip() == "Let me see."
    assert [call.function.name for call in final.message.tool_calls] == ["weather", "clock"]


def test_a_call_is_answered_and_the_chat_goes_on() -> None:
    """The message that the client got is sent back as it is, with every field that it has."""
    model = served(response_template=RESPONSE_TEMPLATE)
    with scripted(CALL) as service, listening(service, model) as address:
        client = client_of(address)
        first = ask(client, tools=[WEATHER]).choices[0].message
        service.script = "It rains."
        [call] = first.tool_calls
        for said in (first, first.model_dump(), first.model_dump(exclude_none=True)):
            told = client.chat.completions.create(
                model="tiny", tools=[WEATHER],
                messages=[*MESSAGES, said,
                          {"role": "tool", "tool_call_id": call.id, "content": "rain"}],
            )  # fmt: skip
            assert told.choices[0].message.content == "It rains."
