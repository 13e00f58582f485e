"""A robot policy behind `POST /act`, as OpenVLA's clients send it: its requests and its batches.

A request is `{"image": ..., "instruction": "...", "unnorm_key": "..."}`, the last one optional. The
image is nested lists, a base64 text (PNG, JPEG, WebP or npy), or what the `json_numpy` package
writes, `{"__numpy__": base64, "dtype": "|u1", "shape": [h, w, 3]}`. The answer has the form of the
request: a list of numbers, or `json_numpy`'s. Policies that say several actions at once answer with
a list of actions, as OpenVLA-OFT's do.
"""

from __future__ import annotations

import asyncio
import base64
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Discriminator, Field, Tag
from starlette.concurrency import run_in_threadpool

from ..checks import check_pixels
from ..engine.request import RequestOptions
from ..engine.rows import Reason
from ..errors import FieldError, SoonerError
from ..methods import Autoregressive, Method
from ..tasks.act.observation import Observation, decode_picture
from ..tasks.act.policy import Policy
from .app import DrainingServer, Handler, create_app
from .engine_thread import Clock, EngineThread, ServedRequest
from .http import ApiFields, name_of, parse, read_body
from .refusal import past_deadline, stopping
from .settings import ServeSettings

DUE_SECONDS = 10.0
"""Seconds after which a request without a deadline goes before those that have one."""
SIDE = 64
"""Pixels of a side of the picture that a policy is tried on."""
POLL_SECONDS = 0.0005
"""Seconds of a step that waits for company; requests are taken in between."""

Pixel = Annotated[int, Field(ge=0, le=255)]
Color = Annotated[list[Pixel], Field(fail_fast=True)]
Row = Annotated[list[Color], Field(fail_fast=True)]


class NumpyImage(ApiFields):
    """A picture as the `json_numpy` package writes it; `read_image` checks it."""

    data: str = Field(alias="__numpy__")
    dtype: Any = None
    shape: Any = None


def kind_of(value: Any) -> str:
    """Returns which form of a picture a value is to be read as."""
    return "text" if isinstance(value, str) else "numpy" if isinstance(value, dict) else "pixels"


Image = Annotated[
    Annotated[str, Tag("text")]
    | Annotated[NumpyImage, Tag("numpy")]
    | Annotated[list[Row], Field(fail_fast=True), Tag("pixels")],
    Discriminator(kind_of),
]


class ActRequest(ApiFields):
    """Holds the body of `POST /act`."""

    image: Image
    instruction: str
    unnorm_key: str | None = None
    deadline_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    details: Literal[False] = False  # they are in the headers

    @property
    def observation(self) -> Observation:
        """Returns what the policy sees.

        Raises:
            FieldError: a field is no picture, or no text that a policy reads.
        """
        return Observation(read_image(self.image), self.instruction, self.unnorm_key)


def as_json_numpy(array: np.ndarray) -> dict[str, Any]:
    """Returns what the `json_numpy` package writes for an array."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"__numpy__": data, "dtype": array.dtype.str, "shape": list(array.shape)}


def write(actions: np.ndarray, as_numpy: bool) -> Any:
    """Returns actions `[horizon, dims]` as JSON, in the form of the request's picture."""
    rows = [as_json_numpy(action) if as_numpy else action.tolist() for action in actions]
    return rows[0] if len(rows) == 1 else rows


def read_image(image: str | NumpyImage | list[Any]) -> np.ndarray:
    """Returns the picture of a request, uint8 `[height, width, 3]`.

    Raises:
        FieldError: it is none.
    """
    if isinstance(image, str):
        return decode_picture(_bytes(image.partition(",")[2] if image[:5] == "data:" else image))
    if isinstance(image, NumpyImage):
        data = _bytes(image.data)
        check_pixels(image.dtype, image.shape)  # before any of them is touched
        if len(data) != (size := math.prod(image.shape)):
            text = f"image has {len(data)} bytes; shape {image.shape} of uint8 has {size}"
            raise FieldError("image", text)
        return np.frombuffer(data, np.uint8).reshape(image.shape)
    try:
        return np.array(image, np.uint8)
    except ValueError as error:
        text = "image has rows of different length; send [height][width][3] of 0 to 255"
        raise FieldError("image", text) from error


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise FieldError("image", f"image is no base64: {error}") from error


@dataclass(eq=False, kw_only=True)
class PolicyRequest(ServedRequest):
    """A request for an action; it says no tokens.

    Attributes:
        action: as `Policy.act` gave it, once it has ended without an error.
        began, seconds: when its batch was computed, by the clock, and for how long.
        batch: requests that were answered together.
    """

    options: RequestOptions = field(default_factory=lambda: RequestOptions({}))
    method: Method = field(default_factory=Autoregressive)
    rows: int = 1
    action: Any = None
    began: float = 0.0
    seconds: float = 0.0
    batch: int = 0


class PolicyEngine:
    """Requests in, batches through a policy, actions out; an engine for `EngineThread`.

    Each step is one call of the policy. Robots that got answers together ask again together, so
    between two calls a step waits a moment for as many requests as the last batch had.

    Args:
        policy: acts on several observations at once; nothing else may run it meanwhile.
        settings: limits, and how long a batch waits for further requests.
        sample: what the policy is tried on after an unexpected error.
        num_requests: counts requests that wait anywhere, or are computed.
        clock: seconds, the same as in `deadline`.
    """

    def __init__(
        self,
        policy: Policy,
        settings: ServeSettings,
        sample: Observation,
        num_requests: Callable[[], int],
        clock: Clock = time.monotonic,
    ) -> None:
        self.policy, self.settings, self.sample = policy, settings, sample
        self.num_requests, self.clock = num_requests, clock
        self.max_rows = settings.max_batch
        self.waiting: list[PolicyRequest] = []
        self._last_batch_size = 1  # requests that were there when the last batch ended
        self._gather_until: float | None = None  # when the next batch waits no longer

    @property
    def is_idle(self) -> bool:
        """Whether no request waits; a batch is computed within a step."""
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
        if self._is_gathering():
            time.sleep(POLL_SECONDS)
            return
        batch = sorted(self.waiting, key=lambda request: request.priority)[: self.max_rows]
        for request in batch:
            self.waiting.remove(request)
            request.is_waiting = False
        began = self.clock()
        answers = self._act([request.inputs["observation"] for request in batch])
        seconds = self.clock() - began
        self._last_batch_size, self._gather_until = self.num_requests(), None
        for request, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                request.finish([[]], "error", answer)
            else:
                request.action, request.batch = answer, len(batch)
                request.began, request.seconds = began, seconds
                request.finish([[]], "stop")
        if any(isinstance(answer, Exception) and not isinstance(answer, SoonerError)
               for answer in answers):  # fmt: skip
            self.check()

    def check(self) -> None:
        """Act on the sample: tells a policy that one request broke from one that is broken.

        Raises:
            Exception: what the policy raised.
        """
        [answer] = self._act([self.sample])
        if isinstance(answer, Exception):
            raise answer

    def _is_gathering(self) -> bool:
        if len(self.waiting) >= min(self._last_batch_size, self.max_rows):
            return False
        if self._gather_until is None:
            self._gather_until = self.clock() + self.settings.window_ms / 1e3
        return self.clock() < self._gather_until

    def _act(self, observations: list[Observation]) -> list[Any]:
        """Returns actions, or in their place what went wrong; one bad request spoils no other."""
        try:
            actions = list(self.policy.act(observations, method=self.settings.method))
            if len(actions) != len(observations):
                raise RuntimeError(f"{len(actions)} actions for {len(observations)} observations")
            return actions
        except Exception as error:
            if len(observations) == 1 or not isinstance(error, SoonerError):
                return [error] * len(observations)
            return [self._act([observation])[0] for observation in observations]


class ActHandler(Handler):
    """Reads requests, has them computed, and writes the responses.

    Args:
        policy: that acts; it belongs to the handler from then on.
        settings: limits and method.

    Raises:
        SoonerError: a method that the policy can't run.
    """

    settings: ServeSettings

    def __init__(self, policy: Policy, settings: ServeSettings) -> None:
        self.policy = policy
        self.method = policy.check_method(settings.method or policy.default_method)
        key = policy.unnorm_key or next(iter(policy.statistics))
        grey = np.full((SIDE, SIDE, 3), 128, np.uint8)
        self.sample = Observation(grey, "wait", key)
        thread = EngineThread(
            self._engine, max_requests=settings.max_queue, warm_up=self._warm_up,
            due_seconds=DUE_SECONDS,
        )  # fmt: skip
        super().__init__(thread, settings, policy.name, settings.max_queue)

    def add_routes(self, app: FastAPI) -> None:
        app.post("/act", dependencies=[Depends(self.count_in_flight)])(self.act)

    def _engine(self) -> PolicyEngine:
        count, clock = lambda: self.service.num_requests, self.service.clock
        engine = PolicyEngine(self.policy, self.settings, self.sample, count, clock)
        engine.check()
        return engine

    def _warm_up(self, engine: Any) -> None:
        """Run each method twice, so that the first request finds everything measured."""
        for method in dict.fromkeys(("plain", self.method)):
            for _ in range(2):
                self.policy.act([self.sample], method=method)

    def description(self) -> dict[str, Any]:
        return {
            "model": self.policy.name,
            "method": self.method,
            "horizon": self.policy.horizon,
            "unnorm_keys": sorted(self.policy.statistics),
            "max_batch": self.settings.max_batch,
            "max_queue": self.settings.max_queue,
        }

    async def act(self, request: Request) -> Response:
        """Returns an action for `image` and `instruction`; docs/act.md lists every field."""
        body = await read_body(request, self.settings)
        # Decoding a picture would block the event loop for other requests.
        fields, observation = await run_in_threadpool(self._read, body)
        limit = fields.deadline_ms or self.settings.deadline_ms
        deadline = None if limit is None else request.state.began + limit / 1e3
        made = PolicyRequest(
            inputs={"observation": observation}, id=name_of(request), arrived=request.state.began,
            deadline=deadline,
        )  # fmt: skip
        await self.wait_for(request, self._run(made), deadline)
        action, queued, computed = made.action, made.began - made.arrived, made.seconds
        answer = write(action.values, isinstance(fields.image, NumpyImage))
        headers = {
            "X-Sooner-Mode": action.mode,
            "X-Sooner-Method": action.method,
            "X-Sooner-Batch": str(made.batch),
            "Server-Timing": f"queue;dur={1e3 * queued:.2f}, act;dur={1e3 * computed:.2f}",
        }
        return JSONResponse(answer, headers=headers)

    def _read(self, body: bytes) -> tuple[ActRequest, Observation]:
        """Returns a request, its picture at the size that the policy sees."""
        request = parse(ActRequest, body)
        return request, self.policy.fitted(request.observation)

    async def _run(self, request: PolicyRequest) -> None:
        """Wait until a request has its action; frees its place if nobody waits any more.

        Raises:
            RefusedError: it is not taken, or the deadline passed.
            Exception: what the policy raised.
        """
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        request.sink = lambda event: loop.call_soon_threadsafe(done.set)
        self.service.submit(request)
        try:
            await done.wait()
        finally:
            self.service.cancel(request)  # does nothing if it has ended
        if request.finish_reason == "deadline":
            raise past_deadline(self.service.clock() - request.arrived)
        if request.action is None:
            raise request.error or stopping()


def build_server(
    policy: Policy, settings: ServeSettings, log_level: str = "warning"
) -> DrainingServer:
    """Returns a server whose `listen` serves until the process is told to stop (SIGINT, SIGTERM);
    then it answers what is under way.

    Raises:
        SoonerError: a method that the policy can't run.
    """
    return DrainingServer(create_app(ActHandler(policy, settings)), settings, log_level)
