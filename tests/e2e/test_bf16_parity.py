"""What holds in bf16: no method says what the model's rounding does not explain.

In fp32 every method says what plain decoding says, token for token. In bf16 a block of several
tokens is rounded otherwise than one token, so runs part where two scores are as good as equal, and
go their own ways from there. The promise is the verdict: *identical* or *tie*, never *bug*.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch

import method_matrix as matrix
import sooner
import tiny
import tiny_canvas
import tiny_policy
from sooner.parity import Parity, compare, reference_run
from sooner.tasks.act import Observation, Policy
from sooner.tasks.imagine.comparison import RecordedPlain

pytestmark = pytest.mark.slow

HALF = torch.bfloat16
METHODS = ("prompt-lookup", "noisy-4", "itself", "eagle", "jacobi-4", "sd-tree", "hsd")
NEW = 24


@functools.cache
def half(family: str) -> Any:
    return copy.deepcopy(tiny.model(family)).to(HALF)


def halved(inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.to(HALF) if value.is_floating_point() else value
        for name, value in inputs.items()
    }


@functools.cache
def text_parities(family: str) -> tuple[Parity, ...]:
    model, inputs = half(family), halved(tiny.inputs(family, tiny.kinds(family)[-1], 3))
    options = {"max_new_tokens": NEW, "eos_token_id": None}
    reference, scores = reference_run(model, inputs, **options)
    width, parities = inputs["input_ids"].shape[1], []
    for name in METHODS:
        method = matrix.METHODS[name](family)
        output = sooner.generate(model, inputs, method, **options, do_sample=False).sequences
        rows = output[:, width:].tolist()
        parities += [compare(*row) for row in zip(reference, rows, scores, strict=True)]
    return tuple(parities)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_greedy_text_is_identical_or_a_tie(family: str) -> None:
    for parity in text_parities(family):
        assert parity.ok, str(parity)


def test_runs_do_part_so_the_verdict_is_needed() -> None:
    """Were all identical, the promise could be stronger, and these tests would show nothing."""
    verdicts = Counter(
        parity.verdict for family in tiny.FAMILIES for parity in text_parities(family)
    )
    assert verdicts["tie"] > 0
    assert verdicts["identical"] > verdicts["tie"]


@functools.cache
def half_canvas(family: str) -> Any:
    model = copy.deepcopy(tiny_canvas.model(family)).to(HALF)
    return sooner.canvas(model, **tiny_canvas.OPTIONS.get(family, {}))


def drawn_parities(
    canvas: Any, inputs: Any, windows: Sequence[int], **options: Any
) -> tuple[list[Parity], float]:
    """VerifyResult of each row at each window, and the share of codes that differ."""
    witness = RecordedPlain(shared_noise=True, dtype=HALF)
    plain = sooner.draw(canvas, inputs, witness, **options).tokens
    prefix, parities, other = plain.shape[1] - len(witness.steps), [], []
    for window in windows:
        drawn = sooner.draw(canvas, inputs, sooner.CoupledJacobi(window), **options).tokens
        rows = zip(plain[:, prefix:].tolist(), drawn[:, prefix:].tolist(), strict=True)
        parities += [witness.compare(row, *pair) for row, pair in enumerate(rows)]
        other.append((plain != drawn).float().mean().item())
    return parities, sum(other) / len(other)


@pytest.mark.parametrize("top_k", [None, 8])
@pytest.mark.parametrize(
    ("family", "guidance"),
    [("janus", 1.0), ("janus", 3.0), ("chameleon", 3.0), ("emu3", 3.0), ("cosmos_ar", 1.0)],
)
def test_pictures_of_the_same_seed_are_identical_or_a_tie(
    family: str, guidance: float, top_k: int | None
) -> None:
    """Noise, guidance and a top-k that cuts otherwise are weighed, too."""
    parities: list[Parity] = []
    for seed in range(12):  # which of them have a tie is the CPU's
        options = {"seed": seed, "guidance": guidance, "count": 4, "top_p": None, "top_k": top_k}
        inputs = tiny_canvas.inputs(family, 2)
        parities += drawn_parities(half_canvas(family), inputs, (4, 16), **options)[0]
        if seed >= 2 and any(parity.verdict == "tie" for parity in parities):
            break
    assert all(parity.ok for parity in parities), [
        str(parity) for parity in parities if not parity.ok
    ]
    assert any(
        parity.verdict == "tie" for parity in parities
    )  # code for code the same holds in fp32 only


def action_parities(policy: Policy, seen: list[Observation], new: int) -> list[Parity]:
    strict = [action.ids.reshape(-1).tolist() for action in policy.act(seen, method="strict")]
    inputs = policy.processor(
        [observation.image for observation in seen],
        [observation.instruction for observation in seen],
    )
    options = {"max_new_tokens": new, "eos_token_id": None}
    reference, scores = reference_run(policy.model, halved(inputs), **options)
    return [compare(*row) for row in zip(reference, strict, scores, strict=True)]


def test_actions_are_identical_or_a_tie() -> None:
    policy = tiny_policy.policy(head=True)
    policy.model.to(HALF)
    parities = [
        parity
        for first in range(0, 40, 8)
        for parity in action_parities(policy, tiny_policy.observations(40)[first : first + 8], 8)
    ]
    assert all(parity.ok for parity in parities), [str(parity) for parity in parities]


def test_texts_of_another_model_are_bugs_in_bf16_too() -> None:
    verdicts: Counter[str] = Counter()
    for family in ("qwen2", "llama", "qwen3_vl"):
        inputs, options = tiny.inputs(family, "text", 3), {"max_new_tokens": NEW}
        options["eos_token_id"] = None
        reference, scores = reference_run(half(family), inputs, **options)
        other, _ = reference_run(copy.deepcopy(tiny.model(family, 5)).to(HALF), inputs, **options)
        rows = zip(reference, other, scores, strict=True)
        verdicts.update(compare(*row).verdict for row in rows)
    assert verdicts["bug"] >= 8


def test_pictures_of_another_seed_are_bugs_in_bf16_too() -> None:
    canvas, inputs = half_canvas("janus"), tiny_canvas.inputs("janus", 2)
    options = {"count": 4, "guidance": 1.0, "top_p": None, "top_k": None}
    witness = RecordedPlain(shared_noise=True, dtype=HALF)
    plain = sooner.draw(canvas, inputs, witness, seed=1, **options).tokens.tolist()
    other = sooner.draw(canvas, inputs, sooner.CoupledJacobi(4), seed=2, **options).tokens.tolist()
    told = Counter(witness.compare(row, plain[row], other[row]).verdict for row in range(8))
    assert told["bug"] >= 6
