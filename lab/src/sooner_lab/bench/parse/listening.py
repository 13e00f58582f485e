"""Records the engine's runs inside a parser: tokens and statistics of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sooner.engine.stats.run import Stats
from sooner.parity import end_ids, until_end


@dataclass(frozen=True)
class GenerateCall:
    """One call of `generate`.

    Attributes:
        tokens: new ones of each row, without the id that ends it.
        stats: of the engine.
    """

    tokens: list[list[int]]
    stats: Stats


@contextmanager
def listening(model: Any) -> Iterator[list[GenerateCall]]:
    """Every run of the engine on `model` within the block; one that is broken off is not told.

    A parser says texts, and ids are what exactness is about.
    """
    runs: list[GenerateCall] = []
    generate = model.generate

    def recorded(*args: Any, **options: Any) -> Any:
        output = generate(*args, **options)
        width = options["input_ids"].shape[1]
        ends = end_ids(model, {})
        rows = [until_end(row, ends) for row in output.sequences[:, width:].tolist()]
        runs.append(GenerateCall([_bare(row, ends) for row in rows], output.stats))
        return output

    model.generate = recorded
    try:
        yield runs
    finally:
        del model.generate


def _bare(tokens: list[int], ends: set[int]) -> list[int]:
    return tokens[:-1] if tokens and tokens[-1] in ends else tokens
