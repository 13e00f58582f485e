"""What a streamed token passes through: one wake-up for many events, one timer, frames of text."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from serve.chatting import HELLO
from serve.spoken import byte_level, ids_of
from sooner.serve.jobs import Finished, GenerationJob, JobUsage, Tokens
from sooner.serve.openai.answering import Answering, AskedChoice, EventMail
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
def test_a_frame_of_text_is_the_chunk_that_the_form_makes(kind: str, said: list[str]) -> None:
    form = form_of(kind, stream_options={"include_usage": True})
    frames = TextFrames(form)
    for place, text in enumerate(said):
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
        found: list[int] = []
        calls: list[Any] = []
        wake = loop.call_soon_threadsafe

        def counted(*told: Any) -> Any:
            calls.append(told)
            return wake(*told)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]

        def rounds() -> None:
            for first in range(0, 40, 8):
                for number in range(first, first + 8):
                    mail.put(loop, partial(found.append, number))

        rounds()  # the loop can't go round meanwhile
        once = len(calls)
        await asyncio.to_thread(rounds)
        while len(found) < 80:
            await asyncio.sleep(0.001)
        return found, once

    found, once = asyncio.run(run())
    assert found == [*range(40), *range(40)]
    assert once == 1


def test_no_event_is_left_behind_whatever_the_threads_do() -> None:
    async def run() -> int:
        loop, mail, found = asyncio.get_running_loop(), EventMail(), [0]

        def count() -> None:
            found[0] += 1

        def put() -> None:
            for _ in range(2000):
                mail.put(loop, count)

        threads = [threading.Thread(target=put) for _ in range(2)]
        for one in threads:
            one.start()
        while any(one.is_alive() for one in threads):
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return found[0]

    assert asyncio.run(run()) == 4000


def test_tokens_wait_for_the_interval_and_what_is_urgent_takes_them_along() -> None:
    async def run() -> tuple[list[int], list[int], list[int], int]:
        loop, mail = asyncio.get_running_loop(), EventMail(interval=0.2)
        found: list[int] = []
        calls: list[Any] = []
        wake = loop.call_soon_threadsafe

        def counted(*told: Any) -> Any:
            calls.append(told)
            return wake(*told)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        mail.put(loop, partial(found.append, 0), False)
        await asyncio.sleep(0)
        for number in (1, 2):
            mail.put(loop, partial(found.append, number), False)
        await asyncio.sleep(0.01)
        first = list(found)
        mail.put(loop, partial(found.append, 3))
        await asyncio.sleep(0)
        urgent = list(found)
        mail.put(loop, partial(found.append, 4), False)
        while len(found) < 5:  # the interval ends, and another begins
            await asyncio.sleep(0.01)
        mail.put(loop, partial(found.append, 5), False)
        await asyncio.sleep(0.01)
        return first, urgent, found, len(calls)

    first, urgent, found, calls = asyncio.run(run())
    assert first == [0]
    assert urgent == [0, 1, 2, 3]
    assert found == [0, 1, 2, 3, 4]
    assert calls == 2


class KeptMail(EventMail):
    """Takes events at once, and remembers which were urgent."""

    def __init__(self) -> None:
        super().__init__()
        self.urgent: list[bool] = []

    def put(self, loop: Any, take: Any, is_urgent: bool = True) -> None:
        self.urgent.append(is_urgent)
        take()


@pytest.mark.parametrize(
    ("stops", "urgent"), [([], [True, False, False, True]), (["zzz"], [True] * 4)]
)
def test_first_tokens_ends_and_what_may_end_by_its_text_are_urgent(
    stops: list[str], urgent: list[bool]
) -> None:
    async def run() -> tuple[list[bool], list[int]]:
        mail, ids = KeptMail(), ids_of("the quick brown fox")
        job = GenerationJob("a", {}, 1, 9)
        choice = Choice(0, Detokenizer(byte_level()), PlainAnswer(), stops, frozenset())
        service: Any = SimpleNamespace(submit=lambda job: None, cancel=lambda job: None)
        answering = Answering(service, [AskedChoice(choice, job)], time.monotonic, mail)
        answering.start()
        for start in range(3):
            job.events(Tokens(ids[start : start + 1], 0, None))
        job.events(Finished("length", JobUsage(1)))
        told = [len(step[1].tokens) async for step in answering.updates() if step is not None]
        return mail.urgent, told

    found, told = asyncio.run(run())
    assert found == urgent
    assert told == [3, 0]  # what waits behind one another is one update
