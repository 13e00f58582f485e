"""A robot policy as the engine's loop takes one: each step is one call, on a ragged batch of rows.

Robots that got answers together ask again together, so between two calls a step waits a moment for
as many requests as the last batch had.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..engine.request import RequestOptions
from ..engine.rows import Reason
from ..errors import SoonerError
from ..methods import Autoregressive
from ..tasks.act.observation import Observation
from ..tasks.act.policy import Policy
from .engine_loop import Clock, ServedRequest
from .settings import ServeSettings

LOOK = 0.0005
"""Seconds of a step that waits for company; requests are taken in between."""


@dataclass(frozen=True)
class ActResult:
    """Holds an action, and how it came about.

    Attributes:
        action: as `Policy.act` gave it.
        began, ended: when its batch was computed, in the clock's seconds.
        rows: requests that were answered together.
    """

    action: Any
    began: float
    ended: float
    rows: int


@dataclass(eq=False, kw_only=True)
class PolicyRequest(ServedRequest):
    """A request for an action; it says no tokens.

    Attributes:
        result: once it has ended without an error.
    """

    result: ActResult | None = None

    @staticmethod
    def of(
        name: str, observation: Observation, arrived: float, deadline: float | None
    ) -> PolicyRequest:
        """Returns the request of one observation."""
        return PolicyRequest(
            inputs={"observation": observation}, options=RequestOptions({}),
            method=Autoregressive(), rows=1, id=name, arrived=arrived, deadline=deadline,
        )  # fmt: skip

    @property
    def observation(self) -> Observation:
        observation: Observation = self.inputs["observation"]
        return observation


class PolicyEngine:
    """Requests in, batches through a policy, results out; an `EngineLike`.

    Args:
        policy: acts on several observations at once; nothing else may run it meanwhile.
        settings: limits, and how long a batch waits for further requests.
        sample: what the policy is tried on after an unexpected error.
        num_requests: counts requests that wait anywhere, or are computed.
        on_batch: called with the actions of every batch.
        clock: seconds, the same as in `deadline`.
    """

    def __init__(
        self,
        policy: Policy,
        settings: ServeSettings,
        sample: Observation,
        num_requests: Callable[[], int],
        on_batch: Callable[[list[Any]], None] = lambda actions: None,
        clock: Clock = time.monotonic,
    ) -> None:
        self.policy, self.settings, self.sample = policy, settings, sample
        self.num_requests, self.on_batch, self.clock = num_requests, on_batch, clock
        self.max_rows = settings.max_batch
        self.waiting: list[PolicyRequest] = []
        self._company = 1  # requests that were held when the last batch ended
        self._until: float | None = None  # when the next batch waits no longer

    @property
    def is_idle(self) -> bool:
        return not self.waiting

    def add(self, request: PolicyRequest) -> None:
        """Adds a request to those that wait."""
        self.waiting.append(request)

    def cancel(self, request: PolicyRequest, reason: Reason = "cancelled") -> None:
        """End a request that waits."""
        if request in self.waiting:
            self.waiting.remove(request)
            request.finish([[]], reason)

    def step(self) -> None:
        """End what is too late, and compute one batch, or wait a moment for its company.

        Raises:
            Exception: the policy failed unexpectedly, and does not act on the sample either.
        """
        now = self.clock()
        for request in list(self.waiting):
            if request.deadline is not None and request.deadline <= now:
                self.cancel(request, "deadline")
        if not self.waiting:
            return
        if self._waits():
            time.sleep(LOOK)
            return
        batch, method = self._take()
        began, rows = self.clock(), len(batch)
        answers = self._act([request.observation for request in batch], method)
        ended = self.clock()
        self._company, self._until = self.num_requests(), None
        for request, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                request.finish([[]], "error", answer)
            else:
                request.result = ActResult(answer, began, ended, rows)
                request.finish([[]], "stop")
        self.on_batch([answer for answer in answers if not isinstance(answer, Exception)])
        if any(_is_unexpected(answer) for answer in answers):
            self.check()

    def check(self) -> None:
        """Act on the sample: tells a policy that one request broke from one that is broken.

        Raises:
            Exception: what the policy raised.
        """
        [answer] = self._act([self.sample], self.policy.settle(self.settings.method, 1))
        if isinstance(answer, Exception):
            raise answer

    def _waits(self) -> bool:
        if len(self.waiting) >= min(self._company, self.max_rows):
            return False
        if self._until is None:
            self._until = self.clock() + self.settings.window_ms / 1e3
        return self.clock() < self._until

    def _take(self) -> tuple[list[PolicyRequest], str]:
        """Returns the next batch, the most urgent requests, and how it is decoded."""
        ready = sorted(self.waiting, key=lambda request: request.priority)[: self.max_rows]
        for request in ready:
            self.waiting.remove(request)
            request.is_waiting = False
        return ready, self.policy.settle(self.settings.method, len(ready))

    def _act(self, observations: list[Observation], method: str) -> list[Any]:
        """Returns actions, or in their place what went wrong; one bad request spoils no other."""
        try:
            actions = list(self.policy.act(observations, method=method))
            if len(actions) != len(observations):
                raise RuntimeError(f"{len(actions)} actions for {len(observations)} observations")
            return actions
        except Exception as error:
            if len(observations) == 1 or not isinstance(error, SoonerError):
                return [error] * len(observations)
            return [self._act([observation], method)[0] for observation in observations]


def _is_unexpected(answer: Any) -> bool:
    return isinstance(answer, Exception) and not isinstance(answer, SoonerError)
