"""What a streamed token passes through: one wake-up for many events, one timer, frames of text."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from serve.chatting import HELLO
from serve.spoken import byte_level
from sooner.serve.openai.answering import EventMail
from sooner.serve.openai.choice import Choice, Update
from sooner.serve.openai.forms import ChatForm, TextForm
from sooner.serve.openai.logprobs import TokenTexts
from sooner.serve.openai.protocol import ChatRequest, CompletionRequest
from sooner.serve.openai.stream import TextFrames
from sooner.serve.openai.text import Detokenizer
from sooner.serve.openai.tools import AnswerPiece, PlainAnswer

HEAD = {"id": 'chatcmpl-"x\\y', "created": 5, "model": 'a "model"', "system_fingerprint": None}


def form_of(kind: str, **more: Any) -> Any:
    texts = TokenTexts(byte_level())
    if kind == "chat":
        return ChatForm(ChatRequest(**HELLO, stream=True, **more), dict(HEAD), texts)
    return TextForm(CompletionRequest(prompt="x", stream=True, **more), dict(HEAD), texts)


def choice_of(index: int) -> Choice:
    return Choice(index, Detokenizer(byte_level()), PlainAnswer(), [], frozenset())


def update_of(*texts: str) -> Update:
    return Update([AnswerPiece("content", text) for text in texts])


@pytest.mark.parametrize("kind", ["chat", "text"])
@settings(max_examples=60, deadline=None)
@given(some.lists(some.text(some.characters(codec="utf-8"), max_size=20), min_size=1, max_size=5))
def test_a_frame_of_text_is_the_chunk_that_the_form_makes(kind: str, texts: list[str]) -> None:
    form = form_of(kind, stream_options={"include_usage": True})
    frames = TextFrames(form)
    for place, text in enumerate(texts):
        choice, update = choice_of(place % 2), update_of(text[:1], text[1:])
        assert form.bare_text(update) == text
        frame = frames.frame(choice, text)
        assert frame.startswith(b"data: ")
        assert frame.endswith(b"\n\n")
        assert b"\n" not in frame[:-2]
        made = form.chunk(choice, update, False).model_dump_json(exclude_unset=True)
        assert json.loads(frame[6:]) == json.loads(made)


def test_all_events_of_a_round_wake_the_loop_once_and_keep_their_order() -> None:
    async def run() -> tuple[list[int], int]:
        loop, mail = asyncio.get_running_loop(), EventMail()
        order: list[int] = []
        calls: list[Any] = []
        wake = loop.call_soon_threadsafe

        def counted(*args: Any) -> Any:
            calls.append(args)
            return wake(*args)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]

        def rounds() -> None:
            for first in range(0, 40, 8):
                for number in range(first, first + 8):
                    mail.put(loop, partial(order.append, number))

        rounds()  # the loop can't go round meanwhile
        once = len(calls)
        await asyncio.to_thread(rounds)
        while len(order) < 80:
            await asyncio.sleep(0.001)
        return order, once

    order, once = asyncio.run(run())
    assert order == [*range(40), *range(40)]
    assert once == 1


@pytest.mark.slow
def test_tokens_wait_for_the_interval_and_what_is_urgent_takes_them_along() -> None:
    async def run() -> tuple[list[int], list[int], list[int], int]:
        loop, mail = asyncio.get_running_loop(), EventMail(interval=0.2)
        order: list[int] = []
        calls: list[Any] = []
        wake = loop.call_soon_threadsafe

        def counted(*args: Any) -> Any:
            calls.append(args)
            return wake(*args)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        mail.put(loop, partial(order.append, 0), False)
        await asyncio.sleep(0)
        for number in (1, 2):
            mail.put(loop, partial(order.append, number), False)
        await asyncio.sleep(0.01)
        first = list(order)
        mail.put(loop, partial(order.append, 3))
        await asyncio.sleep(0)
        urgent = list(order)
        mail.put(loop, partial(order.append, 4), False)
        while len(order) < 5:  # the interval ends, and another begins
            await asyncio.sleep(0.01)
        mail.put(loop, partial(order.append, 5), False)
        await asyncio.sleep(0.01)
        return first, urgent, order, len(calls)

    first, urgent, order, calls = asyncio.run(run())
    assert first == [0]
    assert urgent == [0, 1, 2, 3]
    assert order == [0, 1, 2, 3, 4]
    assert calls == 2
