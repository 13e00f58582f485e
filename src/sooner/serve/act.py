"""The server of a robot policy: `POST /act` as OpenVLA's clients send it, `/health`, `/metrics`.

Requests are those of `EngineThread`, as of `sooner serve MODEL`, over a `PolicyEngine`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from ..errors import SoonerError
from ..tasks.act.observation import FieldError, Observation
from ..tasks.act.policy import Policy
from .engine_loop import Tokens
from .engine_thread import EngineThread
from .http import Bodies, Guard, RequestIds, name_of, unless_gone
from .metrics import ActMetrics
from .policy_engine import ActResult, PolicyEngine, PolicyRequest
from .refusal import RefusedError, act_refused, refusal_of, stopping, too_many
from .settings import ServeSettings
from .wire import ActRequest, milliseconds, parse, write

logger = logging.getLogger("sooner.serve")

DEADLINE = "x-deadline-ms"
PATIENCE = 10.0
"""Seconds after which a request without a deadline goes before those that have one."""
READERS = 2
"""Threads that decode and resize pictures; each holds one picture at its full size at a time."""
SIDE = 64
"""Pixels of a side of the picture that a policy is tried on."""
STATES = {"warming": "failed", "draining": "stopping"}
"""What clients are told of the thread's states, where that is another word."""


class ActHandler:
    """Reads requests, has them computed, and writes the responses.

    Args:
        policy: that acts; it belongs to the handler from then on.
        settings: limits and method.

    Raises:
        SoonerError: a method that the policy can't run.
    """

    def __init__(self, policy: Policy, settings: ServeSettings) -> None:
        self.policy, self.settings = policy, settings
        self.method = policy.check_method(settings.method or policy.default_method)
        key = policy.unnorm_key or next(iter(policy.statistics))
        grey = np.full((SIDE, SIDE, 3), 128, np.uint8)
        self.sample = Observation(grey, "wait", key)
        self.metrics = ActMetrics(lambda: self.thread.load())
        self.thread = EngineThread(
            self._engine, max_requests=settings.max_queue, warm_up=self._warm_up,
            listener=self.metrics, patience=PATIENCE,
        )  # fmt: skip
        self.bodies = Bodies(settings)
        self.under_way = 0
        self._futures: set[asyncio.Future[None]] = set()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sooner-read")

    def _engine(self) -> PolicyEngine:
        thread = self.thread
        engine = PolicyEngine(
            self.policy, self.settings, self.sample, lambda: thread.num_requests,
            self.metrics.batch, thread.clock,
        )  # fmt: skip
        if thread.state != "warming":
            engine.check()  # after a failure
        return engine

    def _warm_up(self, engine: Any) -> None:
        """Run each method twice, so that the first request finds everything measured."""
        for method in dict.fromkeys(("plain", self.method)):
            for _ in range(2):
                self.policy.act([self.sample], method=method)

    async def open(self) -> None:
        """Warm up the policy, and take requests.

        Raises:
            SoonerError: it does not act.
        """
        self.thread.start()
        while self.thread.state == "warming":
            await asyncio.sleep(0.005)
        if self.thread.fault is not None:
            raise SoonerError(f"the policy could not be warmed up ({self.thread.fault})")

    async def close(self) -> None:
        """Take nothing new, answer what is under way for `grace_seconds`, and end; a call of the
        policy that still runs is left behind."""
        self.thread.drain()
        await asyncio.to_thread(self.thread.close, self.settings.grace_seconds)
        for future in self._futures:  # of a call that hangs
            if not future.done():
                future.set_exception(stopping())
        self._readers.shutdown(wait=False)

    async def health(self, request: Request) -> Response:
        """Returns whether requests are taken; with the token, also by what they are answered."""
        state = STATES.get(self.thread.state, self.thread.state)
        answer: dict[str, Any] = {"status": state}
        if request.state.is_known:
            load, fault = self.thread.load(), self.thread.fault
            answer |= {
                **({} if fault is None else {"fault": fault}),
                "model": self.policy.name,
                "method": self.method,
                "horizon": self.policy.horizon,
                "unnorm_keys": sorted(self.policy.statistics),
                "queue": load.waiting,
                "running": load.running,
                "max_batch": self.settings.max_batch,
                "max_queue": self.settings.max_queue,
            }
        return JSONResponse(answer, 200 if state == "ready" else 503)

    async def metrics_text(self) -> Response:
        """Returns Prometheus' text format."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def act(self, request: Request) -> Response:
        """Returns an action for `image` and `instruction`; docs/act.md lists every field."""
        began = self.thread.clock()
        try:
            response = await self._admitted(request, began)
        except Exception as error:
            if isinstance(error, SoonerError) and not isinstance(error, FieldError):
                error = RefusedError(422, str(error))
            response = act_refused(refusal_of(error, name_of(request)))
        self.metrics.answered(response.status_code, self.thread.clock() - began)
        return response if response.status_code == 200 else self.bodies.refusal(response)

    async def _admitted(self, request: Request, began: float) -> Response:
        self.thread.check_takes()
        if self.under_way >= self.settings.max_queue:
            raise too_many(self.settings.max_queue)
        self.under_way += 1
        try:
            async with self.bodies.read(request) as body:
                # Decoding a picture would block the event loop for other requests.
                loop = asyncio.get_running_loop()
                act_request = await loop.run_in_executor(self._readers, self._read, body)
            deadline = self._deadline(request, act_request, began)
            work = self._result(name_of(request), act_request, began, deadline)
            result = await unless_gone(request, work)
        finally:
            self.under_way -= 1
        return _accepted(act_request, result, result.began - began)

    def _read(self, body: bytes) -> ActRequest:
        """Returns a request, its picture at the size that the policy sees."""
        parsed = parse(body)
        return replace(parsed, observation=self.policy.fitted(parsed.observation))

    def _deadline(self, request: Request, act_request: ActRequest, began: float) -> float | None:
        """In the thread's clock; a header comes before the body, and both before the setting."""
        header = milliseconds(request.headers.get(DEADLINE))
        for limit in (header, act_request.deadline_ms, self.settings.deadline_ms):
            if limit is not None:
                return began + limit / 1e3
        return None

    async def _result(
        self, name: str, act_request: ActRequest, began: float, deadline: float | None
    ) -> ActResult:
        """Returns what came of a request; frees its place if nobody waits any more.

        Raises:
            RefusedError: it is not taken, or the deadline passed before its turn came.
            Exception: what the policy raised.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def sink(event: Tokens | None) -> None:
            loop.call_soon_threadsafe(finish)

        request = PolicyRequest.of(name, act_request.observation, began, deadline)
        request.sink = sink
        self.thread.submit(request)
        self._futures.add(done)
        try:
            limit = None if deadline is None else max(deadline - self.thread.clock(), 0)
            await asyncio.wait({done}, timeout=limit)
            if not done.done() and request.is_waiting and not request.has_ended:
                raise self._too_late(began)
            await done
        finally:
            self._futures.discard(done)
            self.thread.cancel(request)  # does nothing if it has ended
        if request.finish_reason == "deadline":
            raise self._too_late(began)
        if request.result is None:
            raise request.error or stopping()
        return request.result

    def _too_late(self, began: float) -> RefusedError:
        waited = 1e3 * (self.thread.clock() - began)
        return RefusedError(
            504,
            f"the deadline passed after {waited:.0f} ms in the queue, so nothing was computed; "
            "give more time, or send fewer requests",
            "deadline_ms",
        )


def _accepted(request: ActRequest, result: ActResult, queued: float) -> Response:
    action, computed = result.action, result.ended - result.began
    body = write(action.values, request.form)
    if request.details:
        times = {"queued": queued, "computed": computed}
        body = {**action.as_dict(), "action": body, "rows": result.rows, **times}
    headers = {
        "X-Sooner-Mode": action.mode,
        "X-Sooner-Method": action.method,
        "X-Sooner-Batch": str(result.rows),
        "Server-Timing": f"queue;dur={1e3 * queued:.2f}, act;dur={1e3 * computed:.2f}",
    }
    return JSONResponse(body, headers=headers)


def create_app(
    policy: Policy,
    settings: ServeSettings | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> FastAPI:
    """Returns a server of one policy, which belongs to it from then on.

    Args:
        on_ready: called once the policy is warm.

    Raises:
        SoonerError: a method that the policy can't run.
    """
    handler = ActHandler(policy, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await handler.open()
        on_ready()
        yield
        await handler.close()

    app = FastAPI(title="sooner act", lifespan=lifespan, redoc_url=None)
    app.add_middleware(Guard, settings=handler.settings, bodies=handler.bodies, refuse=act_refused)
    app.add_middleware(RequestIds)
    app.state.handler = handler

    app.post("/act")(handler.act)
    app.get("/health")(handler.health)
    app.get("/metrics")(handler.metrics_text)
    return app
