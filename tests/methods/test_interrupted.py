"""A request that was interrupted and is prefilled from its own tokens goes on as if it had not."""

from __future__ import annotations

from typing import Any

import pytest

import sooner
import tiny
from method_matrix import METHODS
from sooner.models import adapt

NEW = 17


def whole(family: str, kind: str, name: str, options: dict[str, Any]) -> list[int]:
    inputs, model = tiny.inputs(family, kind), tiny.model(family)
    (tokens,) = sooner.generate(model, inputs, METHODS[name](family), **options).tokens
    return tokens


class Collector:
    """Adds what a request of one row is told to a list."""

    def __init__(self, output: list[int]) -> None:
        self.output = output

    def __call__(self, row: int, ids: list[int], drafted: int) -> None:
        self.output += ids


def interrupted(
    family: str, kind: str, name: str, options: dict[str, Any], places: tuple[int, ...]
) -> list[int]:
    """Ids of a request that is cancelled once it has said so many tokens, and goes on."""
    engine = sooner.Engine(tiny.model(family), METHODS[name](family))
    engine.add_request(tiny.inputs(family), max_new_tokens=40, do_sample=False, eos_token_id=None)
    engine.step()
    output: list[int] = []
    for place in (*places, 1 << 30):
        inputs = tiny.inputs(family, kind)
        before, collector = tuple(output), Collector(output)
        request = engine.add_request(inputs, generated=before, on_tokens=collector, **options)
        while request.tokens is None and len(output) < place:
            engine.step()
        if request.tokens is None:
            engine.cancel(request)
        assert request.tokens == [output[len(before) :]]
        if len(output) >= options["max_new_tokens"]:
            break
    return output


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, "plain") for family in tiny.FAMILIES]
    + [("qwen2_5_vl", name) for name in ("prompt-lookup", "noisy-4", "sd-tree", "eagle")],
)
def test_greedy_requests_go_on_where_they_were(family: str, name: str) -> None:
    options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None}
    for kind in tiny.kinds(family):
        expected = whole(family, kind, name, options)
        assert interrupted(family, kind, name, options, (1, 6, 11)) == expected, kind


@pytest.mark.parametrize(
    ("family", "name"),
    [(family, "plain") for family in tiny.FAMILIES]
    + [("qwen2_5_vl", name) for name in ("prompt-lookup", "noisy-4", "words-only", "eagle")],
)
def test_a_generated_placeholder_token_is_a_word(family: str, name: str) -> None:
    model = tiny.model(family)
    pixels = [token for token in adapt(model).visual_ids if token < adapt(model).vocab_size]
    if not pixels:
        pytest.skip("no token stands for pixels")
    options = {
        "max_new_tokens": NEW, "do_sample": True, "seed": 3, "eos_token_id": None,
        "sequence_bias": {(token,): 4.0 for token in pixels},
    }  # fmt: skip
    for kind in tiny.kinds(family):
        expected = whole(family, kind, "plain", options)
        assert not set(pixels).isdisjoint(expected[:6])
        if name in ("noisy-4", "words-only", "eagle"):  # whose ids are their own when they draw
            options |= {"do_sample": False, "seed": None}
            expected = whole(family, kind, name, options)
        assert interrupted(family, kind, name, options, (2, 6, 11)) == expected, kind
