"""The application: `POST /act`, `GET /health`, `GET /metrics`, described as OpenAPI has it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import JSONResponse, Response

from ..tasks.act.policy import Policy
from .handlers import RequestHandler
from .request_ids import RequestIds
from .settings import ServeSettings

IMAGE = {
    "description": "RGB, 0 to 255: nested lists [height][width][3]; base64 of PNG, JPEG, WebP or "
    "npy; or what json_numpy writes for a uint8 array",
    "anyOf": [
        {"type": "array", "items": {"type": "array"}},
        {"type": "string"},
        {
            "type": "object",
            "required": ["__numpy__", "dtype", "shape"],
            "properties": {
                "__numpy__": {"type": "string"},
                "dtype": {"type": "string"},
                "shape": {"type": "array", "items": {"type": "integer"}},
            },
        },
    ],
}

REQUEST = {
    "type": "object",
    "required": ["image", "instruction"],
    "additionalProperties": False,
    "properties": {
        "image": IMAGE,
        "instruction": {"type": "string", "maxLength": 2000},
        "unnorm_key": {"type": ["string", "null"], "maxLength": 200},
        "deadline_ms": {"type": ["number", "null"], "exclusiveMinimum": 0},
        "details": {"type": "boolean"},
    },
}

REFUSED = {
    "type": "object",
    "required": ["detail"],
    "properties": {"detail": {"type": "string"}, "field": {"type": "string"}},
}

STATUSES = {
    400: "No JSON, or a picture that can't be read.",
    401: "No token, or another one.",
    408: "The body did not come.",
    413: "The body is too large.",
    422: "A field is missing, wrong or unknown.",
    429: "As much is under way as the server takes; Retry-After says when to come back.",
    500: "The policy failed on this request.",
    503: "The server is stopping, full, or has failed and not recovered yet.",
    504: "The deadline passed in the queue; nothing was computed.",
}


def body() -> dict[str, Any]:
    """`openapi_extra` of `POST /act`."""
    return {"requestBody": {"required": True, "content": _json(REQUEST)}}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route that may refuse with these; all that there are by default."""
    chosen = statuses or tuple(STATUSES)
    return {
        status: {"description": STATUSES[status], "content": _json(REFUSED)} for status in chosen
    }


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


SCHEMA = "/openapi.json"


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
    handler = RequestHandler(policy, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await handler.open()
        on_ready()
        yield
        await handler.close()

    # FastAPI's own pages about itself would ask nobody for the token.
    app = FastAPI(
        title="sooner act", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None
    )
    app.add_middleware(RequestIds)
    app.state.handler = handler

    @app.post("/act", openapi_extra=body(), responses=refusals())
    async def act(request: Request) -> Response:
        """Returns an action for an image and an instruction."""
        return await handler.act(request)

    @app.get("/health", responses=refusals(503))
    async def health(request: Request) -> Response:
        """Returns whether requests are taken, and by what they are answered."""
        answer: dict[str, Any] = handler.health(is_known=handler.is_authorized(request))
        return JSONResponse(answer, 200 if answer["status"] == "ready" else 503)

    @app.get("/metrics", responses=refusals(401))
    async def metrics(request: Request) -> Response:
        """Returns Prometheus' text format."""
        if not handler.is_authorized(request):
            return handler.unauthorized()
        return Response(handler.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.get(SCHEMA, include_in_schema=False)
    async def openapi(request: Request) -> Response:
        return (
            JSONResponse(app.openapi())
            if handler.is_authorized(request)
            else handler.unauthorized()
        )

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        if not handler.is_authorized(request):
            return handler.unauthorized()
        return get_swagger_ui_html(openapi_url=SCHEMA, title=app.title)

    return app
