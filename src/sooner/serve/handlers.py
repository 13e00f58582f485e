"""HTTP handlers; every outcome is one HTTP status and one line of text."""

from __future__ import annotations

import asyncio
import hmac
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import Request
from fastapi.responses import JSONResponse, Response
from starlette.requests import ClientDisconnect

from ..errors import SoonerError
from ..tasks.act.observation import FieldError, Observation
from ..tasks.act.policy import Policy
from . import refusal
from .batching import Batcher
from .bodies import Bodies
from .job import ActJob, Answer
from .metrics import Metrics
from .refusal import RefusedError, refused
from .request_ids import name_of
from .settings import ServeSettings
from .wire import ActRequest, milliseconds, parse, write

logger = logging.getLogger("sooner.serve")

DEADLINE = "x-deadline-ms"
READERS = 2
"""Threads that decode and resize pictures; each holds one picture at its full size at a time."""
SIDE = 64
"""Pixels of a side of the picture that a policy is warmed up with."""


class RequestHandler:
    """Reads requests, queues them with the batcher, and writes the responses.

    Args:
        policy: that acts.
        settings: limits and method.

    Raises:
        SoonerError: a method that the policy can't run.
    """

    def __init__(self, policy: Policy, settings: ServeSettings) -> None:
        self.policy, self.settings = policy, settings
        self.method = policy.check_method(settings.method or policy.default_method)
        self.metrics = Metrics(lambda: len(self.batcher.waiting), lambda: len(self.batcher.running))
        self.batcher = Batcher(policy, settings, self.metrics.batch, self.metrics.queue.observe)
        self.bodies = Bodies(settings)
        self.under_way = 0
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sooner-read")

    async def open(self) -> None:
        """Warm up the policy, and start the batcher."""
        key = self.policy.unnorm_key or next(iter(self.policy.statistics))
        grey = np.full((SIDE, SIDE, 3), 128, np.uint8)
        methods = dict.fromkeys(("plain", self.method))
        await self.batcher.warm(Observation(grey, "wait", key), list(methods))
        self.batcher.start()

    async def close(self) -> None:
        """Take nothing new, answer what is under way, and end; see `Batcher.close`."""
        await self.batcher.close()
        self._readers.shutdown(wait=False)

    def is_authorized(self, request: Request) -> bool:
        """Returns whether a request carries the token, if one is needed."""
        if self.settings.token is None:
            return True
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        actual, expected = token.strip().encode(), self.settings.token.encode()
        return kind.lower() == "bearer" and hmac.compare_digest(actual, expected)

    def unauthorized(self) -> Response:
        """Returns the 401 response to a client without the token."""
        return refused(refusal.unknown_client())

    def health(self, is_known: bool = True) -> dict[str, Any]:
        """Returns state of the server; without the token, only whether it is ready."""
        state = {"status": self.batcher.state}
        if not is_known:
            return state
        fault = self.batcher.fault
        return {
            **state,
            **({} if fault is None else {"fault": fault}),
            "model": self.policy.name,
            "method": self.method,
            "horizon": self.policy.horizon,
            "unnorm_keys": sorted(self.policy.statistics),
            "queue": len(self.batcher.waiting),
            "running": len(self.batcher.running),
            "max_batch": self.settings.max_batch,
            "max_queue": self.settings.max_queue,
        }

    async def act(self, request: Request) -> Response:
        """Answer a request."""
        began = self.batcher.clock()
        response = await self._outcome(request, began)
        self.metrics.answered(response.status_code, self.batcher.clock() - began)
        return response if response.status_code == 200 else self.bodies.refusal(response)

    async def _outcome(self, request: Request, began: float) -> Response:
        try:
            return await self._admitted(request, began)
        except RefusedError as error:
            return refused(error)
        except FieldError as error:
            return refused(refusal.of_field(error))
        except SoonerError as error:
            return refused(RefusedError(422, str(error)))
        except ClientDisconnect:
            return refused(refusal.hung_up())
        except Exception as error:
            logger.exception("%s failed", name_of(request))
            return refused(RefusedError(500, f"the policy failed: {type(error).__name__}"))

    async def _admitted(self, request: Request, began: float) -> Response:
        unwanted = self._refusal(request)
        if unwanted is not None:
            raise unwanted
        self.under_way += 1
        try:
            return await self._answered(request, began)
        finally:
            self.under_way -= 1

    def _refusal(self, request: Request) -> RefusedError | None:
        """Returns why a request is not even read, if it is not."""
        if not self.is_authorized(request):
            return refusal.unknown_client()
        if (down := self.batcher.refusal()) is not None:
            return down
        if self.under_way >= self.settings.max_queue:
            return refusal.too_many(self.settings.max_queue, self.batcher.seconds_to_room())
        return None

    async def _answered(self, request: Request, began: float) -> Response:
        loop = asyncio.get_running_loop()
        async with self.bodies.read(request) as body:
            # Decoding a picture would block the event loop for other requests.
            act_request = await loop.run_in_executor(self._readers, self._read, body)
        deadline = self._deadline(request, act_request, began)
        job = self.batcher.submit(act_request.observation, deadline, name_of(request))
        answer = await self._awaited(request, job)
        if answer.is_late:
            self.metrics.late.inc()
        return _accepted(act_request, answer)

    def _read(self, body: bytes) -> ActRequest:
        """Returns a request, its picture at the size that the policy sees."""
        parsed = parse(body)
        return replace(parsed, observation=self.policy.fitted(parsed.observation))

    def _deadline(self, request: Request, act_request: ActRequest, began: float) -> float | None:
        """In the batcher's clock; a header comes before the body, and both before the setting."""
        header = milliseconds(request.headers.get(DEADLINE))
        for limit in (header, act_request.deadline_ms, self.settings.deadline_ms):
            if limit is not None:
                return began + limit / 1e3
        return None

    async def _awaited(self, request: Request, job: ActJob) -> Answer:
        gone = asyncio.ensure_future(_hang_up(request))
        try:
            both: set[asyncio.Future[Any]] = {job.future, gone}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not job.future.done():
                raise refusal.hung_up()
            return job.future.result()
        finally:
            gone.cancel()
            self.batcher.drop(job)


async def _hang_up(request: Request) -> None:
    """Returns when the client is gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _accepted(request: ActRequest, answer: Answer) -> Response:
    action = answer.action
    body = write(action.values, request.form)
    if request.details:
        times = {"queued": answer.queued, "computed": answer.computed}
        body = {**action.as_dict(), "action": body, "rows": answer.rows, **times}
    queued, computed = 1e3 * answer.queued, 1e3 * answer.computed
    headers = {
        "X-Sooner-Mode": action.mode,
        "X-Sooner-Method": action.method,
        "X-Sooner-Batch": str(answer.rows),
        "Server-Timing": f"queue;dur={queued:.2f}, act;dur={computed:.2f}",
    }
    if answer.is_late:
        headers["X-Sooner-Deadline"] = "missed"
    return JSONResponse(body, headers=headers)
