"""One seed, one text: what is drawn for a row depends on its seed and number, its prompt and model.

Not on the method, as long as its drafts are followed by the target's own draws, and for no method
on the other rows of the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers.generation import logits_process as hf

import method_matrix as matrix
import sooner
import tiny
from sooner.engine import loop
from sooner.engine.hf_border import params_of

NEW, SEED = 15, 11
FOLLOWED = {
    **{name: matrix.METHODS[name] for name in (
        "prompt-lookup", "prompt-lookup-short", "eagle", "eagle-wide", "eagle-chain", "hsd",
        "hsd-wide", "ddtree",
    )},
    "top-k-tree": lambda family: sooner.SDTree(tiny.noisy(family), siblings="top"),
}  # fmt: skip
DRAWN = (
    "noisy-4", "stranger", "sd-tree", "jacobi-4", "jacobi-16",
    "dflash", "assistant",
)  # fmt: skip
PROCESSORS: tuple[list[Any], ...] = (
    [],
    [hf.TemperatureLogitsWarper(0.8), hf.TopKLogitsWarper(20), hf.TopPLogitsWarper(0.95)],
    [hf.RepetitionPenaltyLogitsProcessor(1.3)],
)


def draw(
    family: str,
    method: sooner.Method,
    inputs: dict[str, Any],
    end: int | None = None,
    turn: int = 0,
    requests: Sequence[int] | None = None,
) -> list[list[int]]:
    params = params_of(
        PROCESSORS[turn % len(PROCESSORS)], (), 0, len(inputs["input_ids"]), do_sample=True,
        max_new_tokens=NEW, stop_token_ids=frozenset(() if end is None else (end,)),
    )  # fmt: skip
    session = method.session(
        tiny.model(family),
        inputs,
        params,
        generator=torch.Generator().manual_seed(SEED),
        requests=requests,
    )
    return loop.run(session)


@functools.cache
def plain(family: str, kind: str, turn: int, end: int | None) -> list[list[int]]:
    return draw(family, sooner.Autoregressive(), tiny.inputs(family, kind, 3), end, turn)


def cases() -> list[Any]:
    """Every method with three families, in turns of prompts and processors."""
    params = []
    for i, family in enumerate(tiny.FAMILIES):
        for j, name in enumerate(FOLLOWED):
            if (i + j) % 3:
                continue
            kind = tiny.kinds(family)[(i + j) % len(tiny.kinds(family))]
            params.append(pytest.param(family, name, kind, i + j, id=f"{family}-{name}-{kind}"))
    return params


@pytest.mark.parametrize(("family", "name", "kind", "turn"), cases())
def test_drafts_that_are_followed_give_plains_ids(
    family: str, name: str, kind: str, turn: int
) -> None:
    free = plain(family, kind, turn % 3, None)
    end = free[turn % 3][NEW // 2] if turn % 2 else None  # in the middle of a draft, for one row
    inputs = tiny.inputs(family, kind, 3)
    output = draw(family, FOLLOWED[name](family), inputs, end, turn)
    assert output == plain(family, kind, turn % 3, end)


def alone(inputs: dict[str, Any], row: int) -> dict[str, Any]:
    """One row of a batch of words, without its padding."""
    real = inputs["attention_mask"][row].bool()
    return {
        "input_ids": inputs["input_ids"][row, real][None],
        "attention_mask": inputs["attention_mask"][row, real][None],
    }


@pytest.mark.parametrize("family", [pytest.param("llama", marks=pytest.mark.slow), "qwen2_5_vl"])
@pytest.mark.parametrize("name", [*FOLLOWED, *DRAWN])
def test_a_row_decodes_in_a_batch_as_if_alone(family: str, name: str) -> None:
    draws_rows_as_if_alone(family, {**matrix.METHODS, **FOLLOWED}[name])


def draws_rows_as_if_alone(family: str, method: Callable[[str], sooner.Method]) -> None:
    """Checks that what a row draws in a batch is what it draws alone."""
    inputs = tiny.inputs(family, "text", 3)
    end = draw(family, method(family), inputs)[1][4]  # known from a run that never ends
    together = draw(family, method(family), inputs, end)
    assert len({len(row) for row in together}) > 1, "rows end apart"
    for row in range(3):
        output = draw(family, method(family), alone(inputs, row), end, requests=[row])
        assert output == [together[row]]
