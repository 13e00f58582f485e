"""What a streamed token passes through: one wake-up for many events."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from sooner.serve.openai.answering import EventMail


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
