"""Requests that join and leave a batch get the tokens that each of them gets alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch

import sooner
import tiny
from covering import thinned
from method_matrix import LONG, METHODS, aligned
from sooner.methods.tolerance import Tolerance
from sooner.models.openvla.statistics import ActionTokens
from sparse_attention.contexts import sparse

SCHEDULES = 20
"""Schedules of all methods together; core runs 5 of them, and `make soak` 500."""

JOINING = (
    "plain",
    "prompt-lookup",
    "noisy-4",
    "noisy-auto",
    "stranger",
    "words-only",
    "sd-tree",
    "onsd",
    "eagle",
    "eagle-chain",
    "eagle-auto",
    "jacobi-1",
    "jacobi-4",
    "jacobi-16",
    "jacobi-noise",
    "hsd",
    "hsd-wide",
    "hsd-auto",
    "hsd-relaxed",
    "relaxed",
)
"""Methods whose rows may join others."""

MORE: dict[str, Callable[[str], sooner.Method]] = {
    "jacobi-noise": lambda family: sooner.CoupledJacobi(8),
    "hsd-relaxed": aligned(acceptance_threshold=0.6, nodes=12),
    "relaxed": lambda family: sooner.Relaxed(
        METHODS["noisy-4"](family), Tolerance(ActionTokens(tiny.VOCAB, 40), 3, 4)
    ),
}

FOLLOWED = (
    "plain", "prompt-lookup", "eagle", "eagle-chain", "eagle-auto", "hsd", "hsd-wide", "hsd-auto",
)  # fmt: skip
"""Whose ids are plain decoding's, drawn or not."""

CONTEXTS: dict[str, Callable[[str], Any]] = {
    "fastv": lambda family: sooner.FastV(0.5, layer=1),
    "mminference": sparse,
}
"""Sparse prefills, which may be entered around an engine."""

TIMED = ("noisy-auto",)
"""Whose drawn ids depend on draft lengths that a clock decides."""

RELAXED = ("hsd-relaxed", "relaxed")
"""Whose greedy ids are not plain decoding's either."""

SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"do_sample": True, "temperature": 0.8, "top_k": 20},
    {"do_sample": True, "top_p": 0.9, "repetition_penalty": 1.2},
    {"presence_penalty": 0.7, "frequency_penalty": 0.3},
    {"do_sample": True, "temperature": 1.3, "min_p": 0.05, "sequence_bias": [[[17], 2.0]]},
    {"no_repeat_ngram_size": 2, "suppress_tokens": [3]},
    {"do_sample": True, "presence_penalty": 1.5, "top_k": 0},
)
"""What requests of one batch may ask for, each for itself."""


def method_of(name: str, family: str) -> sooner.Method:
    return (MORE | METHODS)[name](family)


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


@dataclass(frozen=True)
class RequestSpec:
    """A request of a schedule.

    Attributes:
        setting: number of its `SETTINGS`.
        end: place of the greedy text whose token ends it; -1 for none.
    """

    family: str
    kind: str
    rows: int
    new: int
    setting: int
    seed: int
    end: int

    def options(self) -> dict[str, Any]:
        stop = (
            alone(self.family, self.kind, self.rows, LONG)[0][self.end] if self.end >= 0 else None
        )
        return {
            **greedy(self.new),
            "eos_token_id": stop,
            "seed": self.seed,
            **SETTINGS[self.setting],
        }

    def inputs(self) -> dict[str, Any]:
        return tiny.inputs(self.family, self.kind, self.rows)


@cache
def right(request: RequestSpec, name: str, context: str = "none") -> list[list[int]]:
    """What it is told alone: by HF where nothing was asked for, else by the method named."""
    if not request.setting and request.end < 0 and name == "plain" and context == "none":
        return [
            row[: request.new] for row in alone(request.family, request.kind, request.rows, LONG)
        ]
    prefill = None if context == "none" else CONTEXTS[context](request.family)
    return sooner.generate(
        tiny.model(request.family), request.inputs(), method_of(name, request.family),
        prefill=prefill, **request.options(),
    ).tokens  # fmt: skip


def reference(name: str, setting: int) -> str:
    """The method whose ids, alone, a request has to get."""
    is_drawn = SETTINGS[setting].get("do_sample", False)
    return name if name in RELAXED or (is_drawn and name not in FOLLOWED) else "plain"


def schedule(
    seed: int, names: Sequence[str] = JOINING, families: Sequence[str] = tiny.FAMILIES,
    context: str = "none", **launch: Any,
) -> int:  # fmt: skip
    """Admit requests between rounds at random, and compare what each said.

    Args:
        context: of the prefill, around all of them.
        launch: how the engine launches steps.

    Returns:
        Most rows that decoded together.
    """
    rng = random.Random(seed)
    family, name = rng.choice(families), rng.choice(names)
    chunk = rng.choice((None, None, 3, 7)) if context == "none" else None
    engine = sooner.Engine(
        tiny.model(family), method_of(name, family), max_rows=rng.choice((2, 3, 5)),
        prefill_chunk=chunk, **launch,
    )  # fmt: skip
    prefill = nullcontext() if context == "none" else CONTEXTS[context](family)(engine.model)
    running: list[tuple[sooner.Request, RequestSpec]] = []
    cancelled: set[int] = set()
    left, together = rng.randint(3, 6), 0
    several = (1,) if context == "fastv" else (1, 1, 2)  # it prunes a prompt at a time
    for kind in tiny.kinds(family):  # HF's own loop can't decode under a context
        for rows in (1, 2):
            alone(family, kind, rows, LONG)
    with prefill:
        while left or not engine.is_idle:
            if left and rng.random() < 0.4:
                spec = RequestSpec(
                    family, rng.choice(tiny.kinds(family)), rng.choice(several),
                    rng.choice((1, 2, 9, LONG)), rng.choice((0, 0, *range(len(SETTINGS)))),
                    rng.randrange(3), rng.choice((-1, -1, 4, 11)),
                )  # fmt: skip
                if name in TIMED and SETTINGS[spec.setting].get("do_sample"):
                    spec = replace(spec, setting=0)
                running.append((engine.add_request(spec.inputs(), **spec.options()), spec))
                left -= 1
            if running and rng.random() < 0.03:
                number = rng.randrange(len(running))
                if running[number][0].tokens is None:
                    engine.cancel(running[number][0])
                    cancelled.add(number)
            engine.step()
            if engine.batch is not None:
                together = max(together, len(engine.running))
    for number, (request, spec) in enumerate(running):
        assert request.error is None, (seed, family, name, request.error)
        assert request.tokens is not None
        expected = right(spec, reference(name, spec.setting), context)
        for output, whole in zip(request.tokens, expected, strict=True):
            count = len(output) if number in cancelled else len(whole)
            assert output == whole[:count], (seed, name, spec)
    return together


@pytest.mark.parametrize("seed", thinned(range(SCHEDULES), range(5)))
def test_a_request_gets_the_tokens_it_gets_alone(seed: int) -> None:
    schedule(seed)


@pytest.mark.soak
def test_and_so_it_does_in_many_more_schedules() -> None:
    for seed in range(SCHEDULES, 500):
        schedule(seed)


@pytest.mark.parametrize("context", CONTEXTS)
def test_prompts_under_a_sparse_prefill_join_and_decode_as_if_alone(context: str) -> None:
    """Where a context takes tokens out of a prompt, rows that lack as many join; others wait."""
    names, families = (
        ("plain", "prompt-lookup", "noisy-4", "sd-tree"),
        ("llava_onevision", "qwen3_vl"),
    )
    together = [schedule(seed, names, families, context) for seed in range(12)]
    assert max(together) > 1


def test_short_prompts_share_a_prefill_step_within_its_budget() -> None:
    inputs = tiny.inputs("llama", "text")
    width = inputs["input_ids"].shape[1]
    engine = sooner.Engine(tiny.model("llama"), prefill_chunk=2 * width)
    for _ in range(5):
        engine.add_request(inputs, **greedy(30))
    engine.step()
    assert len(engine.running) == 2
    engine.step()
    assert len(engine.running) == 4
