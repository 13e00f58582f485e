"""The application: OpenAI's paths, with the fields of requests described as OpenAPI has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from ..http import Guard, RequestIds
from ..refusal import RefusedError, refused
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
SCHEMAS = "#/components/schemas/"
JSON, EVENTS = "application/json", "text/event-stream"
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
    @app.post("/v1/chat/completions", **_described(ChatRequest))
    async def chat_completions(request: Request) -> Response:
        """Returns answers to a chat with text, pictures, videos and PDFs."""
        return await handler.chat(request)

    @app.post("/v1/completions", **_described(CompletionRequest))
    async def completions(request: Request) -> Response:
        """Returns what follows a text."""
        return await handler.completions(request)

    @app.get("/v1/models", responses=_responses(401, 403))
    async def models() -> Response:
        """Returns the model, under each of its names."""
        return handler.models()

    @app.get("/v1/models/{model:path}", responses=_responses(401, 403, 404))
    async def model(model: str) -> Response:
        """Returns the model, if that is a name of it."""
        return handler.model(model)

    @app.get("/health", responses=_responses(403, 503))
    async def health(request: Request) -> Response:
        """Returns whether the engine's loop goes round; 503 if it has not for 30 s."""
        return handler.health(request.state.is_known)

    @app.get("/ready", responses=_responses(403, 503))
    async def ready() -> Response:
        """Returns whether requests are taken; 503 while warming up and draining."""
        return handler.ready()

    @app.get("/metrics", responses=_responses(401, 403, content=["text/plain"]))
    async def metrics() -> Response:
        """Returns counters, gauges and histograms under vLLM's names, with the prefix `sooner:`."""
        return handler.metrics_text()


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


def _described(kind: type[Any]) -> dict[str, Any]:
    """Returns what a route that reads a body of `kind` is described by."""
    content = {JSON: {"schema": {"$ref": SCHEMAS + kind.__name__}}}
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
        "responses": _responses(*STATUSES, content=[JSON, EVENTS]),
    }


def _responses(*statuses: int, content: list[str] | None = None) -> dict[int | str, Any]:
    """Returns `responses` of a route: the types of its answer, and refusals that it may give."""
    responses: dict[int | str, Any] = {
        status: {"description": STATUSES[status], "content": {JSON: {}}} for status in statuses
    }
    types: dict[str, Any] = {name: {} for name in content or [JSON]}
    responses[200] = {"description": "The answer.", "content": types}
    return responses


def _with_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """Bodies are read by our own hand, so FastAPI does not know their models."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for kind in (ChatRequest, CompletionRequest):
        schema = kind.model_json_schema(ref_template=SCHEMAS + "{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[kind.__name__] = schema
    return document
