"""What each of OpenAI's paths answers: a client's request under way, the events of its choices in
order, the body of a stream (chunks as they come, pings in silence, an error where there was one),
and the fields of requests for `/docs`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic.json_schema import models_json_schema
from starlette.concurrency import run_in_threadpool

from ..app import Handler
from ..engine_thread import Tokens, discard
from ..http import name_of, parse, read_body
from ..refusal import (
    BadRequestError,
    engine_failed,
    error_fields,
    past_deadline,
    refusal_of,
    stopping,
    unknown_model,
)
from ..settings import ChatSettings
from .answers import Answer, AnswerForm, TokenTexts
from .choice import Choice, Update
from .grammar import GuidanceGrammars
from .planning import Planner, ServedModel
from .protocol import ChatRequest

if TYPE_CHECKING:
    from ..engine_thread import EngineThread

logger = logging.getLogger("sooner.serve")

SCHEMAS = "#/components/schemas/"
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
Step = tuple[Choice, Update] | None
"""What came for a choice; `None` for a while of silence."""
STREAM = "text/event-stream"
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class EventQueue:
    """Events from the engine's thread to the event loop, which is woken once for all that came.

    A round tells every row's tokens at nearly the same time; a wake-up for each would cost more
    than what is done with them. Nor is every round worth one: where rounds are short, the loop's
    thread takes a core from the thread that decodes, and what it has in its caches.

    Args:
        interval: seconds after a wake-up in which there is another one only for what is urgent;
            whatever else comes waits for the first event after them.
    """

    def __init__(self, interval: float = 0.0) -> None:
        self.interval = interval
        self._pending: deque[Callable[[], None]] = deque()
        self._is_called = False
        self._emptied = -math.inf

    def put(
        self, loop: asyncio.AbstractEventLoop, take: Callable[[], None], is_urgent: bool = True
    ) -> None:
        """Have `take` called in the loop, in order; in any thread.

        Raises:
            RuntimeError: the loop is closed.
        """
        self._pending.append(take)
        is_due = is_urgent or time.monotonic() - self._emptied >= self.interval
        if self._is_called or not (is_due or loop.is_closed()):
            return
        self._is_called = True
        try:
            loop.call_soon_threadsafe(self._empty)
        except BaseException:
            self._is_called = False
            raise

    def _empty(self) -> None:
        self._is_called = False  # first: what comes from here on calls again
        self._emptied = time.monotonic()
        while self._pending:
            self._pending.popleft()()


class Answering:
    """Submits the requests of choices, and turns what comes of them into updates.

    Whatever fails, every request is ended.

    Args:
        service: that decodes.
        choices: whose requests are submitted; their sinks are set here.
        queue: of the event loop that this runs in, shared by all that run there; a choice's first
            tokens and its end are urgent, and all of one that a stop string may end.
    """

    def __init__(self, service: EngineThread, choices: Sequence[Choice], queue: EventQueue) -> None:
        self.service, self.choices, self.queue = service, choices, queue
        self._events: list[tuple[Choice, Tokens | None]] = []
        self._news = asyncio.Event()

    def start(self) -> None:
        """Submit every request, or none.

        Raises:
            RefusedError: the service does not take one of them.
        """
        loop = asyncio.get_running_loop()
        for choice in self.choices:
            choice.request.sink = partial(self._put, loop, choice)
            try:
                self.service.submit(choice.request)
            except Exception:
                choice.request.sink = discard  # it never ends, and would hold itself
                self.cancel()
                raise

    def cancel(self) -> None:
        """Cancels the choices: the client left, or one choice failed: free every row."""
        for choice in self.choices:
            self._cancel(choice)

    async def updates(self, ping: float | None = None) -> AsyncIterator[Step]:
        """Yields what came, in order; `None` after every `ping` seconds without anything.

        Tokens of a choice that wait behind one another are one update.

        Raises:
            RefusedError: a request failed, or its deadline passed; the others are cancelled.
        """
        try:
            while not all(choice.has_ended for choice in self.choices):
                try:
                    async with asyncio.timeout(ping):
                        await self._news.wait()
                except TimeoutError:
                    yield None
                    continue
                self._news.clear()
                events, self._events = self._events, []
                for (choice, _), group in groupby(events, lambda item: (item[0], item[1] is None)):
                    was_over, update = choice.is_finished, Update()
                    for _, event in group:
                        update.extend(self._apply(choice, event))
                    if not was_over:
                        yield choice, update
        finally:
            self.cancel()

    def _put(self, loop: asyncio.AbstractEventLoop, choice: Choice, event: Tokens | None) -> None:
        """In the engine's thread; raises `RuntimeError` if the loop is closed, as a sink may."""
        is_urgent = event is None or choice.has_stops or not choice.ids
        self.queue.put(loop, partial(self._receive, choice, event), is_urgent)

    def _receive(self, choice: Choice, event: Tokens | None) -> None:
        self._events.append((choice, event))
        self._news.set()

    def _apply(self, choice: Choice, event: Tokens | None) -> Update:
        if event is not None:
            update = choice.add(event)
            if choice.is_finished:  # a stop string, which only we know of
                self._cancel(choice)
            return update
        choice.has_ended = True
        self._raise_if_failed(choice)
        return choice.end()

    def _cancel(self, choice: Choice) -> None:
        if not choice.has_ended:
            self.service.cancel(choice.request, "stop" if choice.is_finished else "cancelled")

    def _raise_if_failed(self, choice: Choice) -> None:
        request = choice.request
        if choice.is_finished or request.finish_reason in ("stop", "length"):
            return
        if request.finish_reason == "deadline":
            raise past_deadline(self.service.clock() - request.arrived)
        if request.finish_reason == "cancelled":
            raise stopping()
        raise engine_failed(request.error)


async def frames(
    answering: Answering, first: Step, steps: AsyncIterator[Step], form: AnswerForm, name: str
) -> AsyncIterator[bytes]:
    """Yields the body of a stream.

    Args:
        first, steps: of the answering's `updates`.
        name: the request's id, for the log.
    """
    step: Any = first
    try:
        for opening in form.opening(answering.choices):
            yield _data(opening)
        while step is not False:
            if step is None:
                yield PING
            elif (chunk := form.chunk(*step)) is not None:
                yield _data(chunk)
            step = await anext(steps, False)
        if form.request.wants_usage:
            yield _data(await asyncio.to_thread(form.closing, answering.choices))
    except Exception as error:
        refusal = refusal_of(error, name)
        logger.info("%s ended late with %d: %s", name, refusal.status, refusal.text)
        yield _data({"error": error_fields(refusal)})
    yield DONE


def _data(chunk: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()


class OpenAIHandler(Handler):
    """Reads requests, has them decoded, and writes what came of them.

    Args:
        served: the model.
        grammars: compiles what `response_format` and forced tools ask for.
    """

    settings: ChatSettings

    def __init__(
        self,
        served: ServedModel,
        service: EngineThread,
        settings: ChatSettings,
        grammars: GuidanceGrammars | None = None,
    ) -> None:
        maximum = settings.max_rows + settings.max_queue
        super().__init__(service, settings, served.name, maximum)
        self.served = served
        self.grammars = grammars or GuidanceGrammars(
            served.tokenizer, served.vocab_size, served.stop_token_ids
        )
        self._planner, self._queue = Planner(served), EventQueue(settings.stream_interval)
        self._texts = TokenTexts(served.tokenizer)

    def add_routes(self, app: FastAPI) -> None:
        schema = {"schema": {"$ref": SCHEMAS + ChatRequest.__name__}}
        body = {"required": True, "content": {"application/json": schema}}
        app.post(
            "/v1/chat/completions",
            openapi_extra={"requestBody": body},
            responses={200: {"content": {STREAM: {}}}},
            dependencies=[Depends(self.count_in_flight)],
        )(self.chat)
        app.get("/v1/models")(self.models)
        app.get("/v1/models/{model:path}")(self.model)
        build = app.openapi
        app.openapi = lambda: _with_schemas(build())  # type: ignore[method-assign]

    async def close(self) -> None:
        await super().close()
        self.grammars.close()

    async def models(self) -> Response:
        """Returns the model, under each of its names."""
        cards = [self._card(name) for name in self.served.names]
        return JSONResponse({"object": "list", "data": cards})

    async def model(self, model: str) -> Response:
        """Returns the model, if that is a name of it."""
        if model not in self.served.names:
            raise unknown_model(model, self.served.name)
        return JSONResponse(self._card(model))

    def _card(self, name: str) -> Answer:
        served = self.served
        return {
            "id": name, "object": "model", "created": served.created, "owned_by": "sooner",
            "max_model_len": served.max_model_len, "method": served.method.name,
            "mode": served.method.mode,
        }  # fmt: skip

    async def chat(self, request: Request) -> Response:
        """Returns answers to a chat with text, pictures, videos and PDFs."""
        name = name_of(request)
        body = await read_body(request, self.settings)
        generation = await run_in_threadpool(parse, ChatRequest, body)
        del body  # it may be large, and the answer long in coming
        limit = generation.deadline_ms or 1e3 * (self.settings.deadline or math.inf)
        deadline = None if limit == math.inf else request.state.began + limit / 1e3
        work = self._begin(request, generation, deadline)
        answering = await self.wait_for(request, work, deadline)
        head = {
            "id": f"chatcmpl-{name}",
            "created": int(time.time()),
            "model": generation.model or self.served.name,
        }
        writer = AnswerForm(generation, head, self._texts)
        if not generation.stream:
            return await self.wait_for(request, self._whole(answering, writer))
        steps = answering.updates(self.settings.ping_seconds)
        # A failure that comes soon has a status of its own; a later one is told in the stream.
        first = await self.wait_for(request, anext(steps))
        events = frames(answering, first, steps, writer, name)
        return StreamingResponse(events, headers=HEADERS, media_type=STREAM)

    async def _begin(
        self, request: Request, generation: ChatRequest, deadline: float | None
    ) -> Answering:
        """Prepare a request and submit its choices."""
        if generation.model is not None and generation.model not in self.served.names:
            raise unknown_model(generation.model, self.served.name)
        prompt = await self.served.prepare(generation)
        prediction = await run_in_threadpool(self._planner.prediction_of, generation)
        matcher = await self.grammars.of(generation)
        choices = self._planner.plan(
            name_of(request), generation, prompt, request.state.began, deadline, prediction, matcher
        )
        if len(choices) > self.maximum:
            raise BadRequestError(
                "n", f"{len(choices)} choices are more than this server holds, {self.maximum}; ask "
                "for fewer at a time",
            )  # fmt: skip
        answering = Answering(self.service, choices, self._queue)
        request.state.exits.callback(answering.cancel)
        answering.start()
        return answering

    async def _whole(self, answering: Answering, writer: AnswerForm) -> Response:
        updates = [Update() for _ in answering.choices]
        async for step in answering.updates():
            if step is not None:
                choice, update = step
                updates[choice.index].extend(update)
        # Many choices with a long prediction take a while to count.
        return JSONResponse(await asyncio.to_thread(writer.whole, answering.choices, updates))


def _with_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Bodies are read by our own hand, so FastAPI does not know their models."""
    kinds: Any = [(ChatRequest, "validation")]
    _, schemas = models_json_schema(kinds, ref_template=SCHEMAS + "{model}")
    document.setdefault("components", {}).setdefault("schemas", {}).update(schemas["$defs"])
    return document
