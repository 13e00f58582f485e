"""Items that are begun side by side, and come back as they end; without an event loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

TICK = 0.2
"""Seconds of one wait: a longer one can't be interrupted by Ctrl-C on some systems."""


def as_they_end(
    items: Iterator[Item], begin: Callable[[Item], Future[Made] | None], maximum: int
) -> Generator[tuple[Item, Future[Made]], None, None]:
    """Begin items, `maximum` of them at a time, and yield each when its future has ended.

    Items are taken in a thread of their own: one that is long in coming keeps nobody waiting. What
    is still under way when the generator is closed is cancelled.

    Args:
        items: taken one by one, never more than may be under way.
        begin: called in the caller's thread; `None` if there is nothing to be done.

    Raises:
        Exception: what `items` or `begin` raised.
    """
    pump: _Pump[Item, Made] = _Pump(items, maximum)
    under_way: dict[Future[Made], Item] = {}
    pump.start()
    is_more = True
    try:
        while is_more or under_way:
            result = pump.take()
            if isinstance(result, Future):
                yield under_way.pop(result), result
                pump.slots.release()
            elif isinstance(result, _Entry):
                future = begin(result.item)
                if future is None:
                    pump.slots.release()
                    continue
                under_way[future] = result.item
                future.add_done_callback(pump.events.put)
            elif result is None:
                is_more = False
            else:
                raise result
    finally:
        pump.stop()
        for future in under_way:
            future.cancel()


class _Entry(Generic[Item]):
    """An item that is to be begun."""

    def __init__(self, item: Item) -> None:
        self.item = item


class _Pump(Generic[Item, Made]):
    """A thread that takes items as fast as they may be begun.

    Attributes:
        events: items, futures that have ended, `None` behind the last item, or what was raised.
        slots: how many more items may be under way.
    """

    def __init__(self, items: Iterator[Item], maximum: int) -> None:
        self.items = items
        self.events: queue.SimpleQueue[_Entry[Item] | Future[Made] | BaseException | None]
        self.events = queue.SimpleQueue()
        self.slots = threading.Semaphore(maximum)
        self._is_stopped = False

    def start(self) -> None:
        # A daemon: an item that never comes must not keep the program from ending.
        threading.Thread(target=self._run, name="coming", daemon=True).start()

    def stop(self) -> None:
        self._is_stopped = True
        self.slots.release()

    def take(self) -> _Entry[Item] | Future[Made] | BaseException | None:
        while True:
            try:
                return self.events.get(timeout=TICK)
            except queue.Empty:
                continue

    def _run(self) -> None:
        try:
            while True:
                self.slots.acquire()
                if self._is_stopped:
                    return
                self.events.put(_Entry(next(self.items)))
        except StopIteration:
            self.events.put(None)
        except BaseException as error:
            self.events.put(error)
        finally:
            close = getattr(self.items, "close", None)
            if close is not None:
                close()
