"""What each of OpenAI's paths answers, and the fields of requests for `/docs`."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from ..app import LARGE, Handler, Slot, responses
from ..http import name_of, parse, unless_gone
from ..refusal import BadRequestError, refused, unknown_model
from ..settings import ChatSettings
from .answering import Answering, EventMail, EventStream, frames
from .answers import Answer, AnswerForm, ChatForm, TextForm, TokenTexts, totals
from .choice import Update
from .grammar import GuidanceGrammars
from .planning import Planner, Prepared, ServedModel, prepare_text
from .protocol import ChatRequest, CompletionRequest, GenerationRequest

if TYPE_CHECKING:
    from ..engine_thread import EngineThread
    from ..metrics import ServerMetrics

SCHEMAS, JSON = "#/components/schemas/", "application/json"


class OpenAIHandler(Handler):
    """Reads requests, has them decoded, and writes what came of them.

    Args:
        served: the model.
        grammars: compiles what `response_format` and forced tools ask for.
        options: of `Handler`.
    """

    settings: ChatSettings

    def __init__(
        self,
        served: ServedModel,
        service: EngineThread,
        settings: ChatSettings,
        metrics: ServerMetrics,
        grammars: GuidanceGrammars | None = None,
        **options: Any,
    ) -> None:
        maximum = settings.max_rows + settings.max_queue
        super().__init__(service, settings, metrics, maximum, **options)
        self.served = served
        self.grammars = grammars or GuidanceGrammars(
            served.tokenizer, served.vocab_size, served.stop_token_ids
        )
        self._planner, self._mail = Planner(served), EventMail(settings.stream_interval)
        self._texts = TokenTexts(served.tokenizer)

    def add_routes(self, app: FastAPI) -> None:
        for path, answer, kind in (
            ("/v1/chat/completions", self.chat, ChatRequest),
            ("/v1/completions", self.completions, CompletionRequest),
        ):
            content = {JSON: {"schema": {"$ref": SCHEMAS + kind.__name__}}}
            body = {"requestBody": {"required": True, "content": content}}
            kinds = responses(JSON, EventStream.media_type)
            app.post(path, openapi_extra=body, responses=kinds)(answer)
        app.get("/v1/models", responses=responses(JSON))(self.models)
        app.get("/v1/models/{model:path}", responses=responses(JSON))(self.model)
        build = app.openapi
        app.openapi = lambda: _with_schemas(build())  # type: ignore[method-assign]

    async def close(self) -> None:
        await super().close()
        self.grammars.close()

    async def chat(self, request: Request) -> Response:
        """Returns answers to a chat with text, pictures, videos and PDFs."""
        answer = partial(self._answer, request, ChatRequest, ChatForm, "chatcmpl")
        return await self.counted(request, answer)

    async def completions(self, request: Request) -> Response:
        """Returns what follows a text."""
        answer = partial(self._answer, request, CompletionRequest, TextForm, "cmpl")
        return await self.counted(request, answer)

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

    async def _answer(
        self,
        request: Request,
        kind: type[GenerationRequest],
        form: type[AnswerForm],
        prefix: str,
        began: float,
        slot: Slot,
    ) -> Response:
        name = name_of(request)
        async with self.bodies.read(request) as body:
            generation = await self.on_reader(partial(parse, kind, body), len(body))
            default = None if self.settings.deadline is None else 1e3 * self.settings.deadline
            deadline = self.deadline(request, began, generation.deadline_ms, default)
            work = self._begin(name, generation, began, deadline, slot)
            answering = await unless_gone(request, self.in_time(work, began, deadline))
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
        slot: Slot,
    ) -> Answering:
        """Prepare a request and submit its choices."""
        if generation.model is not None and generation.model not in self.served.names:
            raise unknown_model(generation.model, self.served.name)
        self._planner.check(generation)
        prompts = await self._prompts(generation)
        size = LARGE if generation.prediction else 0
        prediction = await self.on_reader(partial(self._planner.prediction_of, generation), size)
        matcher = await self.grammars.of(generation)
        choices = self._planner.plan(
            name, generation, prompts, began, deadline, prediction, matcher
        )
        if len(choices) > self.maximum:
            raise BadRequestError(
                "n", f"{len(choices)} choices are more than this server holds, {self.maximum}; ask "
                "for fewer at a time",
            )  # fmt: skip
        answering = Answering(self.service, choices, self.clock, self._mail)
        slot.on_release = answering.cancel
        answering.start()
        return answering

    async def _prompts(self, generation: Any) -> list[Prepared]:
        if isinstance(generation, ChatRequest):
            return [await self.served.prepare(generation)]
        return await self.on_reader(
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


def _with_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Bodies are read by our own hand, so FastAPI does not know their models."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for kind in (ChatRequest, CompletionRequest):
        schema = kind.model_json_schema(ref_template=SCHEMAS + "{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[kind.__name__] = schema
    return document
