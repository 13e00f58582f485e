"""A page about the API, made of its own description: no scripts, and nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin: 2.5rem 0 0; font-size: 1.1rem } h2 code { font-size: 1.1rem }
table { border-collapse: collapse; width: 100%; margin: .75rem 0; font-size: .9rem }
td, th { border-bottom: 1px solid #8884; padding: .25rem .75rem .25rem 0; text-align: left;
  vertical-align: top }
code { font: .95em ui-monospace, monospace } p { margin: .25rem 0 }
"""


def page_of(described: Mapping[str, Any]) -> str:
    """Returns HTML of an OpenAPI description: each path with the fields of its body and its
    statuses.
    """
    title = escape(described["info"]["title"])
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}: API</title>",
        f"<style>{STYLE}</style><h1>{title}</h1>",
        "<p>OpenAI's API; the whole description is <code>/openapi.json</code>.</p>",
    ]
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts += _operation(method.upper(), path, operation, schemas)
    return "\n".join(parts)


def _operation(
    method: str, path: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]
) -> Iterator[str]:
    yield f"<h2><code>{escape(method)} {escape(path)}</code></h2>"
    yield f"<p>{escape(operation.get('description', ''))}</p>"
    if (body := operation.get("requestBody")) is not None:
        schema = body["content"]["application/json"]["schema"]
        yield "<table><tr><th>field</th><th>type</th><th></th></tr>"
        yield from _fields(schemas[_name(schema)])
        yield "</table>"
    yield "<table><tr><th>status</th><th></th></tr>"
    for status, answer in sorted(operation["responses"].items()):
        yield f"<tr><td>{escape(str(status))}</td><td>{escape(answer['description'])}</td></tr>"
    yield "</table>"


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        marks = "required" if name in required else ""
        kind = f"<code>{escape(_type(field))}</code>"
        yield f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{marks}</td></tr>"


def _type(schema: Mapping[str, Any]) -> str:
    """Returns a type in a few words, such as `string or list of integer`."""
    if "$ref" in schema:
        return _name(schema)
    for union in ("anyOf", "oneOf"):
        if union in schema:
            kinds = dict.fromkeys(_type(option) for option in schema[union])
            kinds.pop("null", None)
            return " or ".join(kinds)
    if "enum" in schema or "const" in schema:
        return " or ".join(map(repr, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    bounds = "" if low is None or high is None or abs(high) > 1e9 else f", {low} to {high}"
    return f"{schema.get('type', 'any')}{bounds}"


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]
