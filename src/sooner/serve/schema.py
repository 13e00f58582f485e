"""What the server says about itself: the request and its answers, as OpenAPI has them."""

from __future__ import annotations

from typing import Any

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
