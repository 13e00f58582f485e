"""The application: what each of OpenAI's paths answers, and the fields of requests for `/docs`."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from ..http import Bodies, Guard, RequestIds, name_of, unless_gone
from ..refusal import (
    BadRequestError,
    RefusedError,
    not_ready,
    past_deadline,
    refusal_of,
    refused,
    too_many,
    unknown_model,
)
from ..settings import ChatSettings
from .answering import Answering, EventMail, EventStream, frames
from .answers import Answer, AnswerForm, ChatForm, TextForm, TokenTexts, totals
from .choice import Update
from .grammar import GuidanceGrammars, refuse_grammars
from .messages import deadline_seconds, parse
from .planning import Planner, Prepared, ServedModel, prepare_text
from .protocol import ChatRequest, CompletionRequest, GenerationRequest

if TYPE_CHECKING:
    from ..engine_thread import EngineThread
    from ..metrics import ChatMetrics

STALL = 30.0
"""Seconds without a round of the engine's loop after which `/health` fails."""
READERS = 2
"""Threads that read bodies and tokenize."""
LARGE = 64 << 10
"""Bytes of a body that is read in one of them."""
DEADLINE = "x-deadline-ms"
SCHEMAS, JSON = "#/components/schemas/", "application/json"
BARE = ("/chat/completions", "/completions", "/models")
"""What clients ask for whose base URL lacks `/v1`."""

Result = TypeVar("Result")


class OpenAIHandler:
    """Reads requests, has them decoded, and writes what came of them.

    Args:
        served: the model.
        service: that decodes.
        settings: limits.
        metrics: of the whole server.
        grammars: compiles what `response_format` and forced tools ask for.
        grammars_missing: why that is refused where there are no grammars.
        on_close: waits until the service has ended what is under way; called in a thread.
        clock: the service's seconds.

    Attributes:
        maximum: requests, and choices of one, that are under way at once.
        under_way: requests that are read, prepared or answered.
    """

    def __init__(
        self,
        served: ServedModel,
        service: EngineThread,
        settings: ChatSettings,
        metrics: ChatMetrics,
        grammars: GuidanceGrammars | None = None,
        grammars_missing: str = "this server has none; leave it out",
        on_close: Callable[[], Any] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.served, self.service, self.settings = served, service, settings
        self.metrics, self.clock, self.on_close = metrics, clock, on_close
        self.grammars, self.grammars_missing = grammars, grammars_missing
        self.bodies = Bodies(settings)
        self.under_way = 0
        self.is_closing = False
        self.maximum = settings.max_rows + settings.max_queue
        self._planner, self._mail = Planner(served), EventMail(settings.stream_interval)
        self._texts = TokenTexts(served.tokenizer)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="sooner-read")

    async def close(self) -> None:
        """Take nothing new, and wait until what is under way has ended."""
        if self.is_closing:
            return
        self.is_closing = True
        await asyncio.to_thread(self.on_close)
        self._readers.shutdown(wait=False)
        if self.grammars is not None:
            self.grammars.close()

    async def chat(self, request: Request) -> Response:
        """Returns answers to a chat with text, pictures, videos and PDFs."""
        return await self._counted(request, ChatRequest, ChatForm, "chatcmpl")

    async def completions(self, request: Request) -> Response:
        """Returns what follows a text."""
        return await self._counted(request, CompletionRequest, TextForm, "cmpl")

    async def models(self) -> Response:
        """Returns the model, under each of its names."""
        cards = [self._card(name) for name in self.served.names]
        return JSONResponse({"object": "list", "data": cards})

    async def model(self, model: str) -> Response:
        """Returns the model, if that is a name of it."""
        if model not in self.served.names:
            return refused(unknown_model(model, self.served.name))
        return JSONResponse(self._card(model))

    def _card(self, name: str) -> Answer:
        served = self.served
        return {
            "id": name, "object": "model", "created": served.created, "owned_by": "sooner",
            "max_model_len": served.max_model_len, "method": served.method_name,
            "mode": served.method.mode,
        }  # fmt: skip

    def status(self) -> str:
        """Returns the service's state; `stalled` where the engine's loop does not go round."""
        state = self.service.state
        if state in ("ready", "draining") and self._waited() > STALL:
            return "stalled"
        return "ok" if state == "ready" else state

    def _waited(self) -> float:
        return max(self.clock() - self.service.last_tick, 0.0)

    async def health(self, request: Request) -> Response:
        """Returns whether the engine's loop goes round; 503 if it has not for 30 s.

        Without the token it tells nothing more.
        """
        answer: Answer = {"status": self.status()}
        if request.state.is_known:
            load = self.service.load()
            waited = round(self._waited(), 3)
            answer |= {"seconds_since_tick": waited, "running": load.running}
            answer["waiting"] = load.waiting
        return JSONResponse(answer, 503 if answer["status"] in ("stalled", "failed") else 200)

    async def ready(self) -> Response:
        """Returns whether requests are taken; 503 while warming up and draining."""
        state = "draining" if self.is_closing else self.service.state
        return JSONResponse({"status": state}, 200 if state == "ready" else 503)

    async def metrics_text(self) -> Response:
        """Returns counters, gauges and histograms under vLLM's names, with the prefix `sooner:`."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _counted(
        self, request: Request, kind: type[Any], form: type[AnswerForm], prefix: str
    ) -> Response:
        began, slot = self.clock(), _Slot(self)
        try:
            response = await self._admitted(request, kind, form, prefix, began, slot)
        except Exception as error:
            response = self.bodies.refusal(refused(refusal_of(error, name_of(request))))
        finally:
            if not slot.is_streamed:
                slot.release()
        self.metrics.answered(response.status_code, self.clock() - began)
        return response

    async def _admitted(
        self,
        request: Request,
        kind: type[GenerationRequest],
        form: type[AnswerForm],
        prefix: str,
        began: float,
        slot: _Slot,
    ) -> Response:
        self._check_takes()
        slot.take()
        name = name_of(request)
        async with self.bodies.read(request) as body:
            generation = await self._on_reader(partial(parse, kind, body), len(body))
            header = request.headers.get(DEADLINE)
            seconds = deadline_seconds(header, generation.deadline_ms, self.settings.deadline)
            deadline = None if math.isinf(seconds) else began + seconds
            work = self._begin(name, generation, began, deadline, slot)
            answering = await unless_gone(request, self._in_time(work, began, deadline))
        del body  # it counts no more
        head = {
            "id": f"{prefix}-{name}",
            "created": int(time.time()),
            "model": generation.model or self.served.name,
            "system_fingerprint": self.served.fingerprint,
        }
        writer = form(generation, head, self._texts)
        if not generation.stream:
            return await unless_gone(request, self._whole(answering, writer, generation))
        ping = self.settings.ping_seconds
        # A failure that comes soon has a status of its own; a later one is told in the stream.
        await unless_gone(request, answering.begun(ping))
        last = partial(self._totals, answering, generation) if generation.wants_usage else None
        slot.is_streamed = True
        return EventStream(frames(answering, writer, ping, last, name), slot.release)

    async def _begin(
        self,
        name: str,
        generation: GenerationRequest,
        began: float,
        deadline: float | None,
        slot: _Slot,
    ) -> Answering:
        """Prepare a request and submit its choices."""
        if generation.model is not None and generation.model not in self.served.names:
            raise unknown_model(generation.model, self.served.name)
        self._planner.check(generation)
        prompts = await self._prompts(generation)
        size = LARGE if generation.prediction else 0
        prediction = await self._on_reader(partial(self._planner.prediction_of, generation), size)
        if self.grammars is None and generation.has_grammar:
            refuse_grammars(generation, self.grammars_missing)
        matcher = _none if self.grammars is None else await self.grammars.of(generation)
        choices = self._planner.plan(
            name, generation, prompts, began, deadline, prediction, matcher
        )
        if len(choices) > self.maximum:
            raise BadRequestError(
                "n", f"{len(choices)} choices are more than this server holds, {self.maximum}; ask "
                "for fewer at a time",
            )  # fmt: skip
        slot.answering = answering = Answering(self.service, choices, self.clock, self._mail)
        answering.start()
        return answering

    async def _prompts(self, generation: Any) -> list[Prepared]:
        if isinstance(generation, ChatRequest):
            return [await self.served.prepare(generation)]
        return await self._on_reader(
            lambda: [prepare_text(self.served, prompt) for prompt in generation.prompts]
        )

    async def _whole(
        self, answering: Answering, writer: AnswerForm, generation: GenerationRequest
    ) -> Response:
        answers = [(choice, Update()) for choice in answering.choices]
        async for step in answering.updates():
            if step is not None:
                choice, update = step
                answers[choice.index][1].extend(update)
        return JSONResponse(writer.whole(answers, self._totals(answering, generation)))

    def _totals(self, answering: Answering, generation: GenerationRequest) -> Answer:
        choices = answering.choices
        prompts = [choice.request.prompt_tokens for choice in choices[:: generation.choices]]
        return totals(choices, prompts)

    async def _on_reader(self, work: Callable[[], Result], size: int = LARGE) -> Result:
        """Do what would block the event loop in a thread, if it is `size` enough."""
        if size < LARGE:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def _in_time(
        self, work: Coroutine[Any, Any, Result], began: float, deadline: float | None
    ) -> Result:
        """Returns the result of `work`, unless the deadline passes.

        Raises:
            RefusedError: 504.
        """
        limit = asyncio.timeout(None if deadline is None else deadline - self.clock())
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise past_deadline(self.clock() - began) from None
            raise
        finally:
            del limit  # it holds the task that holds the error whose frames hold it

    def _check_takes(self) -> None:
        """Refuse a request before it is read.

        Raises:
            RefusedError: nothing is taken now.
        """
        state = "draining" if self.is_closing else self.service.state
        if state != "ready" and (refusal := not_ready(state, self.service.fault)) is not None:
            raise refusal
        if self.under_way >= self.maximum:
            raise too_many(self.maximum)


def _none() -> None:
    """A choice without a grammar."""


class _Slot:
    """What a request holds: one of the places, and its choices. Given back once, whatever happens.

    Attributes:
        is_streamed: the stream gives it back when it has ended.
    """

    def __init__(self, handler: OpenAIHandler) -> None:
        self.handler = handler
        self.answering: Answering | None = None
        self.is_streamed = self.is_counted = False

    def take(self) -> None:
        self.is_counted = True
        self.handler.under_way += 1

    def release(self) -> None:
        if self.answering is not None:
            self.answering.cancel()
        if self.is_counted:
            self.is_counted = False
            self.handler.under_way -= 1


def create_app(
    handler: OpenAIHandler,
    on_ready: Callable[[], None] = lambda: None,
    page: Callable[[FastAPI], Any] | None = None,
) -> FastAPI:
    """Returns the server of one model.

    Args:
        handler: answers; closed with the application.
        on_ready: called once connections are taken, be the model warm or not.
        page: puts a page on the application, for browsers; these ask for the token then.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        on_ready()
        yield
        await handler.close()

    app = FastAPI(title="sooner", lifespan=lifespan, redoc_url=None, redirect_slashes=False)
    app.add_middleware(
        Guard, settings=handler.settings, bodies=handler.bodies, has_page=page is not None
    )
    app.add_middleware(RequestIds)
    app.state.handler = handler
    app.exception_handler(HTTPException)(_refused)
    _add_routes(app, handler)
    build = app.openapi
    app.openapi = lambda: _with_schemas(build())  # type: ignore[method-assign]
    if page is not None:
        page(app)
    return app


def _add_routes(app: FastAPI, handler: OpenAIHandler) -> None:
    for path, chat_or_text, kind in (
        ("/v1/chat/completions", handler.chat, ChatRequest),
        ("/v1/completions", handler.completions, CompletionRequest),
    ):
        content = {JSON: {"schema": {"$ref": SCHEMAS + kind.__name__}}}
        body = {"requestBody": {"required": True, "content": content}}
        responses = _responses(JSON, EventStream.media_type)
        app.post(path, openapi_extra=body, responses=responses)(chat_or_text)
    for path, answer in (
        ("/v1/models", handler.models),
        ("/v1/models/{model:path}", handler.model),
        ("/health", handler.health),
        ("/ready", handler.ready),
    ):
        app.get(path, responses=_responses(JSON))(answer)
    app.get("/metrics", responses=_responses("text/plain"))(handler.metrics_text)


def _responses(*types: str) -> dict[int | str, Any]:
    """Returns `responses` of a route, by the types of its answer; docs/serve.md lists refusals."""
    text = "A refusal: `error` has a `message`, and the `param` that is at fault."
    refusal: dict[str, Any] = {"description": text, "content": {JSON: {}}}
    content: dict[str, Any] = {name: {} for name in types}
    return {200: {"description": "The answer.", "content": content}, "default": refusal}


async def _refused(request: Request, error: Exception) -> Response:
    """Returns paths and methods that there are not."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path[:200], dict(error.headers or {})
    if error.status_code == 405:
        text = f"{path} takes {headers.get('Allow')}, not {request.method}; see /docs"
    elif path in BARE:
        text = f"no path {path} here; a client's base URL of this server ends in /v1, see /docs"
    else:
        text = f"no path {path} here; chats are POST /v1/chat/completions, for others see /docs"
    handler: OpenAIHandler = request.app.state.handler
    return handler.bodies.refusal(refused(RefusedError(error.status_code, text, headers=headers)))


def _with_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Bodies are read by our own hand, so FastAPI does not know their models."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for kind in (ChatRequest, CompletionRequest):
        schema = kind.model_json_schema(ref_template=SCHEMAS + "{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[kind.__name__] = schema
    return document
