"""The application: OpenAI's paths, described as OpenAPI has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ..refusal import RefusedError
from ..request_ids import RequestIds
from .answers import (
    ChatCompletion,
    ErrorAnswer,
    HealthAnswer,
    ModelCard,
    ModelList,
    TextCompletion,
)
from .errors import refused
from .guard import Guard
from .protocol import ChatRequest, CompletionRequest
from .routes import OpenAIHandler

STATUSES = {
    400: "A field is missing or wrong (`param` names it), or the prompt is too long.",
    401: "No token, or another one.",
    403: "A Host or an Origin that is not this machine's.",
    404: "No such model.",
    408: "The body did not come.",
    413: "The body is too large.",
    429: "As much is under way as the server takes; Retry-After says when to come back.",
    503: "The server is warming up, stopping or has failed.",
    504: "The deadline passed; the row is free again.",
}
ASKING = (400, 401, 403, 404, 408, 413, 429, 503, 504)
SCHEMAS = "#/components/schemas/"
EVENT = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string"}}}
"""A server-sent event, with `stream: true`; its data is a chunk as JSON, or `[DONE]`."""
STREAM = {"text/event-stream": {"schema": EVENT}}
BARE = ("/chat/completions", "/completions", "/models")
"""What clients ask for whose base URL lacks `/v1`."""


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
    has_page = page is not None
    app.add_middleware(Guard, settings=handler.settings, bodies=handler.bodies, has_page=has_page)
    app.add_middleware(RequestIds)
    app.state.handler = handler
    app.exception_handler(HTTPException)(_refused)
    _add_asking(app, handler)
    _add_telling(app, handler)
    _describe(app)
    if page is not None:
        page(app)
    return app


def _add_asking(app: FastAPI, handler: OpenAIHandler) -> None:
    @app.post(
        "/v1/chat/completions",
        openapi_extra=_body(ChatRequest),
        responses=_responses(*ASKING, answer=ChatCompletion, streams=True),
    )
    async def chat_completions(request: Request) -> Response:
        """Returns answers to a chat with text, pictures, videos and PDFs."""
        return await handler.chat(request)

    @app.post(
        "/v1/completions",
        openapi_extra=_body(CompletionRequest),
        responses=_responses(*ASKING, answer=TextCompletion, streams=True),
    )
    async def completions(request: Request) -> Response:
        """Returns what follows a text."""
        return await handler.completions(request)


def _add_telling(app: FastAPI, handler: OpenAIHandler) -> None:
    @app.get("/v1/models", responses=_responses(401, 403, answer=ModelList))
    async def models() -> Response:
        """Returns the model, under each of its names."""
        return handler.models()

    @app.get("/v1/models/{model:path}", responses=_responses(401, 403, 404, answer=ModelCard))
    async def model(model: str) -> Response:
        """Returns the model, if that is a name of it."""
        return handler.model(model)

    @app.get("/health", responses=_responses(403, answer=HealthAnswer, unwell=True))
    async def health(request: Request) -> Response:
        """Returns whether the engine's loop goes round; 503 if it has not for 30 s."""
        return handler.health(request.state.is_known)

    @app.get("/ready", responses=_responses(403, answer=HealthAnswer, unwell=True))
    async def ready() -> Response:
        """Returns whether requests are taken; 503 while warming up and draining."""
        return handler.ready()

    @app.get(
        "/metrics",
        responses={
            **_responses(401, 403),
            200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}},
        },
    )
    async def metrics() -> Response:
        """Returns counters, gauges and histograms under vLLM's names, with the prefix `sooner:`."""
        return handler.metrics_text()


def _describe(app: FastAPI) -> None:
    """Have the description of the API name the fields of bodies and answers."""
    build = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_schemas(build())
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


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


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": SCHEMAS + kind.__name__}}}
    return {"requestBody": {"required": True, "content": content}}


def _responses(
    *statuses: int,
    answer: type[BaseModel] | None = None,
    streams: bool = False,
    unwell: bool = False,
) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route: its answer and the refusals that it may give.

    Args:
        unwell: 503 tells the same as 200, and is no refusal.
    """
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": STATUSES[status], "content": _json(ErrorAnswer)}
        for status in statuses
    }
    if answer is not None:
        content = {**_json(answer), **(STREAM if streams else {})}
        responses[200] = {"description": "The answer.", "content": content}
        if unwell:
            responses[503] = {"description": "Not so.", "content": _json(answer)}
    return responses


def _json(kind: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": SCHEMAS + kind.__name__}}}


def _with_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Bodies are read by our own hand, so FastAPI does not know their models."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    sent = (ChatCompletion, TextCompletion, ErrorAnswer, HealthAnswer, ModelCard, ModelList)
    modes: list[tuple[Any, Any]] = [(ChatRequest, "validation"), (CompletionRequest, "validation")]
    for kind, mode in [*modes, *((model, "serialization") for model in sent)]:
        schema = kind.model_json_schema(ref_template=SCHEMAS + "{model}", mode=mode)
        schemas.update(schema.pop("$defs", {}))
        schemas[kind.__name__] = schema
    return document
