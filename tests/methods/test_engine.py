"""Requests that join and leave a batch get the tokens that each of them gets alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

import sooner
import tiny
from method_matrix import METHODS

SCHEDULES = 40
"""Of all methods together; `slow` runs 500."""

JOINING = (
    "plain",
    "prompt-lookup",
    "noisy-4",
    "noisy-auto",
    "stranger",
    "words-only",
    "sd-tree",
    "onsd",
    "specvlm",
    "eagle",
    "eagle-chain",
    "eagle-auto",
    "sparse-to-dense",
)
"""Methods whose rows may join others."""


def greedy(new: int) -> dict[str, Any]:
    return {"max_new_tokens": new, "do_sample": False, "eos_token_id": None}


@cache
def alone(family: str, kind: str, rows: int, new: int) -> list[list[int]]:
    """What HF's own loop says to each prompt."""
    inputs = tiny.inputs(family, kind, rows)
    model = tiny.model(family)
    with torch.inference_mode():
        ids = model.generate(**inputs, max_new_tokens=new, do_sample=False, eos_token_id=None)
    return ids[:, inputs["input_ids"].shape[1] :].tolist()


def schedule(seed: int, **launch: Any) -> None:
    """Admit requests between rounds at random, and compare what each said.

    Args:
        launch: how the engine launches steps.
    """
    rng = random.Random(seed)
    family = rng.choice(tiny.FAMILIES)
    name = rng.choice(JOINING)
    chunk = rng.choice((None, None, 3, 7))
    engine = sooner.Engine(
        tiny.model(family), METHODS[name](family), max_rows=rng.choice((2, 3, 5)),
        prefill_chunk=chunk, **launch,
    )  # fmt: skip
    asked: list[tuple[sooner.Request, str, int, int]] = []
    cancelled: set[int] = set()
    left = rng.randint(3, 6)
    while left or not engine.is_idle:
        if left and rng.random() < 0.4:
            kind, rows, new = (
                rng.choice(tiny.kinds(family)),
                rng.choice((1, 1, 2)),
                rng.choice((1, 2, 9, 23)),
            )
            inputs = tiny.inputs(family, kind, rows)
            request = engine.admit(inputs, **greedy(new))
            asked.append((request, kind, rows, new))
            left -= 1
        if asked and rng.random() < 0.03:
            number = rng.randrange(len(asked))
            if asked[number][0].tokens is None:
                engine.cancel(asked[number][0])
                cancelled.add(number)
        engine.step()
    for number, (request, kind, rows, new) in enumerate(asked):
        assert request.error is None, (seed, family, name, request.error)
        assert request.tokens is not None
        wanted = alone(family, kind, rows, 23)
        for said, whole in zip(request.tokens, wanted, strict=True):
            count = len(said) if number in cancelled else new
            assert said == whole[:count], (seed, family, name, kind, rows, new)


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_a_request_gets_the_tokens_it_gets_alone(seed: int) -> None:
    schedule(seed)


@pytest.mark.slow
def test_and_so_it_does_in_many_more_schedules() -> None:
    for seed in range(SCHEDULES, 500):
        schedule(seed)


def test_rows_join_while_others_decode() -> None:
    """Else the schedules above would show nothing."""
    engine = sooner.Engine(tiny.model("llama"), max_rows=4)
    for new in (23, 20, 9):
        engine.admit(
            tiny.inputs("llama", "text"), max_new_tokens=new, do_sample=False, eos_token_id=None
        )
    together = []
    while not engine.is_idle:
        engine.step()
        together.append(0 if engine.batch is None else len(engine.batch.rows.active))
    assert max(together) == 3


def test_a_method_that_needs_a_batch_of_its_own_waits_for_it() -> None:
    engine = sooner.Engine(tiny.model("llama"), METHODS["parallel"]("llama"))
    first, second = (
        engine.admit(
            tiny.inputs("llama", "text"), max_new_tokens=9, do_sample=False, eos_token_id=None
        )
        for _ in range(2)
    )
    engine.run()
    assert first.tokens == second.tokens == alone("llama", "text", 1, 9)


def test_a_request_that_fails_ends_alone() -> None:
    engine = sooner.Engine(tiny.model("llama"))
    good = engine.admit(tiny.inputs("llama", "text"), max_new_tokens=9, do_sample=False)
    bad = engine.admit(tiny.inputs("llama", "text"), max_new_tokens=9, num_beams=3)
    engine.run()
    assert isinstance(bad.error, sooner.UnsupportedError)
    assert good.error is None
    assert good.tokens


def test_greedy_and_sampled_requests_share_a_batch() -> None:
    """A greedy row among drawn ones says what it says alone."""
    family = "llama"
    for name in ("plain", "noisy-4", "eagle", "sd-tree"):
        engine = sooner.Engine(tiny.model(family), METHODS[name](family))
        engine.admit(
            tiny.inputs(family, "text"), max_new_tokens=30, do_sample=True, top_k=5, seed=3,
            eos_token_id=None,
        )  # fmt: skip
        certain = engine.admit(
            tiny.inputs(family, "text"), max_new_tokens=23, do_sample=False, eos_token_id=None
        )
        engine.admit(
            tiny.inputs(family, "text"), max_new_tokens=30, do_sample=True, temperature=0.5,
            eos_token_id=None,
        )  # fmt: skip
        engine.run()
        assert certain.tokens == alone(family, "text", 1, 23), name


@pytest.mark.parametrize("name", ["plain", "prompt-lookup", "noisy-4", "sd-tree", "eagle"])
def test_a_seed_gives_the_same_tokens_in_any_company(name: str) -> None:
    """What a request draws depends on its seed, and not on who else decodes."""
    family = "qwen2_5_vl"
    method = METHODS[name](family)
    drawn: dict[str, Any] = {"do_sample": True, "top_k": 20, "eos_token_id": None}
    kinds = tiny.kinds(family)
    apart = [
        sooner.generate(
            tiny.model(family), tiny.inputs(family, kind), method, seed=seed, max_new_tokens=15,
            **drawn,
        ).tokens
        for seed, kind in enumerate(kinds)
    ]  # fmt: skip
    for delays in ((0, 0, 0, 0, 0, 0), (1, 0, 3, 2, 0, 1), (4, 4, 0, 0, 2, 0)):
        engine = sooner.Engine(tiny.model(family), method, max_rows=4)
        requests = []
        for seed, (kind, delay) in enumerate(zip(kinds, delays, strict=False)):
            for _ in range(delay):
                engine.step()
            inputs = tiny.inputs(family, kind)
            requests.append(engine.admit(inputs, seed=seed, max_new_tokens=15, **drawn))
        engine.admit(tiny.inputs(family), **greedy(30))
        engine.run()
        assert [request.tokens for request in requests] == apart[: len(requests)]


class Callers:
    """Collects what each request's callback was told."""

    def __init__(self) -> None:
        self.said: dict[int, list[int]] = {}

    def of(self, number: int) -> Callable[[int, list[int], int], None]:
        def tell(row: int, tokens: list[int], drafted: int) -> None:
            assert row == 0
            self.said.setdefault(number, []).extend(tokens)

        return tell


def test_each_request_is_told_its_own_tokens() -> None:
    callers = Callers()
    engine = sooner.Engine(tiny.model("llama"), METHODS["noisy-4"]("llama"))
    options: dict[str, Any] = {"do_sample": False, "eos_token_id": None}
    requests = [
        engine.admit(
            tiny.inputs("llama", kind), max_new_tokens=9 + number, on_tokens=callers.of(number),
            **options,
        )
        for number, kind in enumerate(("text",) * 3)
    ]  # fmt: skip
    engine.run()
    for number, request in enumerate(requests):
        assert request.tokens == [callers.said[number]]


def test_short_prompts_are_prefilled_in_one_step_within_its_budget() -> None:
    inputs = tiny.inputs("llama", "text")
    width = inputs["input_ids"].shape[1]
    engine = sooner.Engine(tiny.model("llama"), prefill_chunk=2 * width)
    for _ in range(5):
        engine.admit(inputs, **greedy(30))
    engine.step()
    assert len(engine.running) == 2
    engine.step()
    assert len(engine.running) == 4


def test_a_request_tells_what_was_drafted_for_it() -> None:
    """Whoever decodes beside it, and drafts without success."""
    family = "llama"
    inputs = tiny.inputs(family, "text")
    told = sooner.generate(tiny.model(family), inputs, METHODS["noisy-4"](family), **greedy(23))
    engine = sooner.Engine(tiny.model(family), METHODS["noisy-4"](family))
    requests = []
    for _ in range(3):
        requests.append(engine.admit(inputs, **greedy(23)))
        engine.step()
        engine.step()
    engine.run()
    rounds = sum(told.stats.acceptance_histogram.values())
    for request in requests:
        assert request.num_draft_tokens == told.stats.num_draft_tokens
        assert 0 < request.num_drafts <= rounds
        assert request.mode == "exact"
    plain = engine.admit(inputs, method=sooner.Autoregressive(), **greedy(9))
    engine.run()
    assert plain.num_drafts == plain.num_draft_tokens == 0
