"""A replica: one process of the cluster with one model, its engine and OpenAI's API over it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import SoonerError
from .exchange import Ack, Exchange, Head, PassedRequest

if TYPE_CHECKING:
    from ..serve.settings import ChatSettings

STALL = 30.0
"""Seconds without a round of the engine's loop after which a replica is replaced."""


@dataclass(frozen=True)
class ReplicaReport:
    """How a replica is.

    Attributes:
        name: Ray's.
        status: `ok`, `warming`, `draining`, `stalled` or `failed`, as `/health` has it.
        seconds_since_tick: since the engine's loop went round.
        running, waiting: requests.
        metrics: what its `/metrics` tells, if that was asked for.
    """

    name: str
    status: str
    seconds_since_tick: float
    running: int
    waiting: int
    metrics: bytes = b""


class ChatReplica:
    """What `sooner serve` runs, asked by the front instead of over a socket.

    Args:
        load: loads the models, in the replica.
        asked: the model as it was named.
        settings: of the server; address and token are the front's.

    Raises:
        SoonerError: as `load`; or the engine could not be warmed up.
    """

    def __init__(self, load: Callable[[], Any], model_name: str, settings: ChatSettings) -> None:
        from ..serve.chat_run import ChatServer
        from ..serve.heap import bound_heap, trimming_heap

        bound_heap()
        self._heap = trimming_heap()
        self._heap.__enter__()
        self.name = _replica_name()
        self._chat = ChatServer(load(), model_name, settings)
        self._chat.start()
        self._under_way: set[asyncio.Task[None]] = set()
        while self._chat.thread.state == "warming":
            time.sleep(0.01)
        if self._chat.thread.fault is not None:
            raise SoonerError(f"the engine could not be warmed up ({self._chat.thread.fault})")

    async def answer(self, request: PassedRequest) -> AsyncIterator[Ack | Head | bytes]:
        """Yields who answers, status and headers, and the body as it comes."""
        yield Ack(self.name)
        exchange = Exchange(request)
        # It outlives a caller that hangs up, for as long as it takes to give the rows back.
        task = asyncio.ensure_future(exchange.run(self._chat.app))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        try:
            async for piece in exchange.pieces():
                yield piece
        finally:
            exchange.hang_up()

    async def report(self, metrics: bool = False) -> ReplicaReport:
        """Returns how it is."""
        thread = self._chat.thread
        waited = max(thread.clock() - thread.last_tick, 0.0)
        status: str = "ok" if thread.state == "ready" else thread.state
        if waited > STALL and thread.state in ("ready", "draining"):
            status = "stalled"
        load = thread.load()
        text = self._chat.metrics.text() if metrics else b""
        return ReplicaReport(self.name, status, waited, load.running, load.waiting, text)

    async def check_health(self) -> None:
        """Ray replaces a replica for which this raises.

        Raises:
            RuntimeError: its engine has failed, or goes round no more.
        """
        report = await self.report()
        if report.status in ("failed", "stalled"):
            raise RuntimeError(f"the engine of replica '{self.name}' has {report.status}")

    def __del__(self) -> None:
        """Ray calls it once a replica that is taken away has answered what it had."""
        if (chat := getattr(self, "_chat", None)) is not None:
            chat.thread.close(0)
            chat.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the front has seen that the answer ended early


def _replica_name() -> str:
    from ray import serve

    return str(serve.get_replica_context().replica_id.unique_id)
