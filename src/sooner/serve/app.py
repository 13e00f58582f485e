"""The application: `POST /act`, `GET /health`, `GET /metrics`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from ..tasks.act.policy import Policy
from .desk import Desk
from .settings import ServeSettings

REQUEST = {
    "type": "object",
    "required": ["image", "instruction"],
    "properties": {
        "image": {"description": "RGB: nested lists, base64 of PNG, JPEG or npy, or json_numpy"},
        "instruction": {"type": "string"},
        "unnorm_key": {"type": "string"},
        "deadline_ms": {"type": "number", "exclusiveMinimum": 0},
        "details": {"type": "boolean"},
    },
}
BODY = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": REQUEST}}},
}


def create_app(
    policy: Policy,
    settings: ServeSettings | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> FastAPI:
    """A server of one policy, which belongs to it from then on.

    Args:
        on_ready: called once the policy is warm.

    Raises:
        SoonerError: a method that the policy can't run.
    """
    desk = Desk(policy, settings or ServeSettings())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await desk.open()
        on_ready()
        yield
        await desk.close()

    app = FastAPI(title="sooner act", lifespan=lifespan)
    app.state.desk = desk

    @app.post("/act", openapi_extra=BODY)
    async def act(request: Request) -> Response:
        """An action for an image and an instruction."""
        return await desk.act(request)

    @app.get("/health")
    async def health(request: Request) -> Response:
        """Whether requests are taken, and by what they are answered."""
        told: dict[str, Any] = desk.health(is_known=desk.knows(request))
        return JSONResponse(told, 200 if told["status"] == "ready" else 503)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Prometheus' text format."""
        if not desk.knows(request):
            return desk.stranger()
        return Response(desk.metrics.text(), media_type="text/plain; version=0.0.4")

    return app
