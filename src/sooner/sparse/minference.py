"""Reads the head patterns that MInference publishes with its code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import SoonerError, unknown
from .patterns import AShape, Dense, HeadPattern, VerticalSlash
from .table import Head, read_json

KINDS = ("vertical_and_slash", "stream_llm", "block_sparse")


def read_heads(path: Path | str) -> tuple[tuple[tuple[Head, ...], ...], list[str]]:
    """The heads of every layer of an MInference file, and notes on what has no counterpart.

    The file is a list over layers of `{"head": [kind, first, second, score]}`; the numbers are
    `vertical, slash` of `vertical_and_slash`, `sink, local` of `stream_llm`. The score is the share
    of attention that was kept. Heads of kind `block_sparse` become dense: slower, but no worse.

    Raises:
        SoonerError: another format; says where.
    """
    data = read_json(path)
    if not isinstance(data, list) or not all(isinstance(layer, dict) for layer in data):
        raise SoonerError(f"'{path}' is no MInference file, which is a list of one object a layer")
    layers = []
    for number, layer in enumerate(data):
        try:
            layers.append(_layer(layer))
        except SoonerError as error:
            raise SoonerError(f"'{path}', layer {number}: {error}") from error
    lost = Counter(entry[0] for layer in data for entry in layer.values())["block_sparse"]
    notes = [f"{lost} block_sparse heads have no counterpart and run dense"] if lost else []
    return tuple(layers), notes


def _layer(layer: dict[str, Any]) -> tuple[Head, ...]:
    if sorted(layer) != sorted(map(str, range(len(layer)))):
        raise SoonerError(f"its heads are {', '.join(layer)}, not 0 to {len(layer) - 1}")
    return tuple(_head(place, layer[str(place)]) for place in range(len(layer)))


def _head(place: int, entry: Any) -> Head:
    if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) < 3:
        raise SoonerError(f"head {place} is {entry!r}, not [kind, first, second, score]")
    kind, first, second, *rest = entry
    if kind not in KINDS:
        raise unknown("MInference pattern", str(kind), KINDS)
    recall = float(rest[0]) if rest and isinstance(rest[0], int | float) else None
    is_share = recall is not None and 0 <= recall <= 1
    return Head(_pattern(kind, first, second), recall=recall if is_share else None)


def _pattern(kind: str, first: Any, second: Any) -> HeadPattern:
    if kind == "vertical_and_slash":
        return VerticalSlash(first, second)
    return AShape(first, second) if kind == "stream_llm" else Dense()
