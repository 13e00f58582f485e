"""Drafting that pauses for some rows or for all: drafts catch up, and rows decode as if alone."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import sooner
import tiny
from methods.test_engine import greedy
from sooner.engine.interface import Drafter, Outcome
from sooner.engine.loop import Rule
from sooner.engine.tree import Tree
from sooner.methods.context import Context
from sooner.methods.controller import RoundCost
from sooner.methods.draft_length import AdaptiveDraftLength, DraftLength, RoundRows
from sooner.methods.speculative import ChainDrafter, _may_be_faster, reject
from sooner.methods.tree_size import NOTHING, Size, TreeSize

PAUSE = 24
"""Rounds without drafts, in which the draft falls as many tokens behind."""


class Paused(DraftLength):
    """Three tokens, and after the second round none for a while."""

    def __init__(self) -> None:
        super().__init__(3)
        self.rounds = 0

    def choose(self, batch: RoundRows) -> list[int]:
        self.rounds += 1
        return [0 if 2 < self.rounds <= 2 + PAUSE else 3] * len(batch.rows)


@dataclass(frozen=True)
class PausedDraft(sooner.Speculative):
    def _draft_length(self, context: Context) -> DraftLength:
        return Paused()


class PausedTree(TreeSize):
    """A pause for trees."""

    def __init__(self, largest: Size) -> None:
        super().__init__(largest)
        self.rounds = 0

    def choose(self, *args: Any) -> Size:
        self.rounds += 1
        return NOTHING if 2 < self.rounds <= 2 + PAUSE else self.largest


@dataclass(frozen=True)
class PausedEagle(sooner.Eagle):
    def placed(self, context: Context) -> tuple[Any, TreeSize]:
        return super().placed(context)[0], PausedTree(Size(6, 2))


METHODS = {
    "speculative": lambda family: PausedDraft(tiny.noisy(family)),
    "eagle": lambda family: PausedEagle(tiny.head(family), top_k=2),
}
LONG, SHORT = 60, 9


@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl"])
@pytest.mark.parametrize("name", METHODS)
def test_a_draft_catches_up_in_blocks_that_fit_the_longest_row(
    name: str, family: str, is_paged: bool
) -> None:
    """The first row is behind by more tokens than the second, longer one has room for."""
    model = tiny.model(family)
    late, near = (tiny.inputs(family, "text", 1, seed) for seed in (0, 1))
    near = {name: tensor.repeat(1, 9) for name, tensor in near.items()}
    memory: dict[str, Any] = {"pages": 40} if is_paged else {}
    engine = sooner.Engine(model, METHODS[name](family), max_rows=2, **memory)
    requests = [engine.add_request(late, **greedy(LONG))]
    for _ in range(PAUSE):
        engine.step()
    requests.append(engine.add_request(near, **greedy(SHORT)))
    engine.run()
    for inputs, length, request in zip((late, near), (LONG, SHORT), requests, strict=True):
        assert request.error is None
        assert request.tokens == sooner.generate(model, inputs, **greedy(length)).tokens
    assert requests[0].num_drafts > PAUSE / 4


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
    lengths = (23, 9, 23, 14)
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


def test_a_draft_no_smaller_than_its_target_is_never_tried() -> None:
    target, inputs = tiny.model("llama"), tiny.inputs("llama", "text", 1)
    options: dict[str, Any] = {"max_new_tokens": 12, "eos_token_id": None, "do_sample": False}
    result = sooner.generate(target, inputs, sooner.Speculative(tiny.noisy("llama")), **options)
    assert (result.stats.draft_forwards, result.stats.num_draft_tokens) == (0, 0)
    assert result.tokens == sooner.generate(target, inputs, **options).tokens
    fixed = sooner.Speculative(tiny.noisy("llama"), num_draft_tokens=3)
    assert sooner.generate(target, inputs, fixed, **options).stats.num_draft_tokens > 0


def test_quantised_weights_are_left_to_the_clock() -> None:
    def holding(*weights: torch.Tensor) -> Any:
        return SimpleNamespace(decoder=SimpleNamespace(parameters=lambda: weights))

    small, large = holding(torch.zeros(4)), holding(torch.zeros(8))
    assert _may_be_faster(small, large)
    assert not _may_be_faster(large, small)
    assert not _may_be_faster(small, small)
    assert _may_be_faster(large, holding(torch.zeros(4, dtype=torch.uint8)))


class Costed(AdaptiveDraftLength):
    """A round takes a second, a draft forward a tenth of one, on whatever machine."""

    def prefilled(self, prompt: int, seconds: float) -> None:
        super().prefilled(prompt, 0.1)

    def observe_cost(self, done: RoundCost, tokens: float) -> None:
        super().observe_cost(replace(done, drafting=0.1 * done.forwards, seconds=1.0), tokens)


class OtherText(ChainDrafter):
    """Drafts what is right for the first half of a text, and never after."""

    def propose(self, outcome: Outcome) -> Tree:
        tree = super().propose(outcome)
        if len(outcome.rows.output(0)) < 80:
            return tree
        return replace(tree, tokens=(tree.tokens + 1) % tiny.VOCAB)


@dataclass(frozen=True)
class ChangingText(sooner.Speculative):
    def build(self, context: Context) -> tuple[Drafter, Rule]:
        adapter, inputs = self.draft_of(context)
        return OtherText(adapter, inputs, context, Costed(4, context.stats.note)), reject


def test_a_text_that_changes_halfway_is_an_alarm_once_and_decoded_plainly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, inputs = tiny.model("llama"), tiny.inputs("llama", "text", 1)
    with caplog.at_level(logging.WARNING, "sooner"):
        made = sooner.generate(model, inputs, ChangingText(model), **greedy(160))
    assert made.tokens == sooner.generate(model, inputs, **greedy(160)).tokens
    stats = made.stats
    assert stats.alarms == {"acceptance": 1}
    (note,) = [text for text in stats.notes if "acceptance fell" in text]
    assert [record.getMessage() for record in caplog.records] == [note]
    assert stats.acceptance_histogram[4] >= 10
    assert stats.num_draft_tokens < 80 + 100, "the second half has few drafts"
