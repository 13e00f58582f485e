"""Rows that join while drafting pauses: no draft reads their prompts, and others' drafts go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

import sooner
import tiny
from method_matrix import LONG
from methods.test_engine import greedy
from sooner.methods.context import Context
from sooner.methods.draft_length import DraftLength


class Chosen(DraftLength):
    """Takes the rows that it is told to, and drafts three tokens."""

    def __init__(self, takes: Callable[[], bool]) -> None:
        super().__init__(3)
        self._takes = takes

    def takes_rows(self, prompt: int, limit: int | None, left: Sequence[int] | None = None) -> bool:
        return self._takes()


@dataclass(frozen=True)
class SomeRows(sooner.Speculative):
    """Drafts for the requests whose places in the order of admission say so."""

    takes: list[bool] = field(default_factory=list)

    def _draft_length(self, context: Context) -> DraftLength:
        return Chosen(lambda: self.takes.pop(0))


FAMILIES = {"llama": "text", "qwen2_5_vl": "video", "llava_onevision": "image"}
TAKES = ([True, False, True, False], [False, True, False, True], [False] * 4)


def prompts(family: str) -> list[dict[str, Any]]:
    kinds = ("text", FAMILIES[family], "text", FAMILIES[family])
    return [tiny.inputs(family, kind, 1, seed) for seed, kind in enumerate(kinds)]


@pytest.mark.parametrize("takes", TAKES)
@pytest.mark.parametrize("family", FAMILIES)
def test_they_decode_as_if_alone_and_the_rest_is_drafted_for(
    family: str, takes: list[bool]
) -> None:
    model, method = tiny.model(family), SomeRows(tiny.noisy(family), takes=[*takes])
    engine = sooner.Engine(model, method, max_rows=3, prefill_chunk=5)
    lengths = (LONG, 9, LONG, 14)
    requests = [
        engine.add_request(inputs, **greedy(length))
        for inputs, length in zip(prompts(family), lengths, strict=True)
    ]
    engine.run()
    for inputs, length, request, is_drafted in zip(
        prompts(family), lengths, requests, takes, strict=True
    ):
        assert request.error is None
        assert request.tokens == sooner.generate(model, inputs, **greedy(length)).tokens
        assert (request.num_drafts > 0) == is_drafted
