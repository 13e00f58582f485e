"""What holds in bf16: no method generates what the model's rounding does not explain.

In fp32 every method generates what plain decoding does, token for token. In bf16 a block of several
tokens is rounded otherwise than one token, so runs part where two scores are as good as equal, and
go their own ways from there. The promise is the verdict: *identical* or *tie*, never *bug*; and
samples can't be told from plain decoding's, at a size that tells another temperature.
"""

from __future__ import annotations

import copy
import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency

import method_matrix as matrix
import sooner
import tiny
import tiny_canvas
import tiny_policy
from fakes import ERROR
from sooner.parity import Parity, compare, reference_run
from sooner.tasks.act import Observation, Policy
from sooner.tasks.imagine.batch import RecordedPlain

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


SAMPLES = 1500


def p_same(first: torch.Tensor, other: torch.Tensor) -> float:
    """Chi-square p-value that two samples `[samples, places]` are of one distribution; cells of
    fewer than ten samples are pooled."""
    cells, index = torch.unique(torch.cat([first, other]), dim=0, return_inverse=True)
    counts = np.zeros((2, len(cells)))
    for half_of, numbers in enumerate((index[: len(first)], index[len(first) :])):
        counts[half_of] = np.bincount(numbers.numpy(), minlength=len(cells))
    rare = counts.sum(0) < 10
    table = np.concatenate([counts[:, ~rare], counts[:, rare].sum(1, keepdims=True)], 1)
    table = table[:, table.sum(0) > 0]
    return 1.0 if table.shape[1] < 2 else float(chi2_contingency(table).pvalue)


@functools.cache
def sampled(family: str, method: str, temperature: float = 1.0) -> torch.Tensor:
    """Four tokens behind one prompt, `[SAMPLES, 4]`, of the three likeliest each."""
    model, inputs = half(family), tiny.inputs(family)
    torch.manual_seed(sum(method.encode()))
    options = {"max_new_tokens": 4, "eos_token_id": None, "do_sample": True, "top_k": 3}
    sequences = sooner.generate(
        model,
        inputs,
        matrix.METHODS[method](family),
        **options,
        temperature=temperature,
        num_return_sequences=SAMPLES,
    ).sequences
    return sequences[:, inputs["input_ids"].shape[1] :]


@pytest.mark.parametrize("method", ["noisy-4", "prompt-lookup-short", "jacobi-4", "eagle"])
def test_sampled_text_has_plain_decodings_distribution(method: str) -> None:
    assert p_same(sampled("qwen2", method), sampled("qwen2", "plain")) > ERROR


def drawn(method: sooner.Method, seed: int, temperature: float = 1.0) -> torch.Tensor:
    """The codes of places 4 to 6 of pictures, `[600, 3]`, of the three likeliest each."""
    canvas, inputs = half_canvas("janus"), tiny_canvas.inputs("janus", 1)
    options = {"top_p": None, "top_k": 3, "guidance": 2.0, "temperature": temperature}
    return sooner.draw(canvas, inputs, method, seed=seed, count=600, **options).tokens[:, 1:4]


@pytest.mark.parametrize("coupling", ["independent", "maximal", "gumbel"])
@pytest.mark.parametrize("verify", ["ratio", "noise"])
def test_drawn_codes_have_plain_decodings_distribution(coupling: str, verify: str) -> None:
    method = sooner.CoupledJacobi(8, coupling, verify=verify)
    assert p_same(drawn(method, 1), drawn(sooner.Autoregressive(), 2)) > ERROR


@pytest.mark.parametrize("family", ["qwen2", "qwen2_5_vl", "llava_onevision"])
def test_a_block_is_no_further_from_a_step_than_bf16_from_fp32(family: str) -> None:
    """Total variation of next-token distributions, mean over 24 steps of three rows."""
    inputs, options = tiny.inputs(family, "text", 3), {"max_new_tokens": 24, "eos_token_id": None}
    output_ids, steps = reference_run(half(family), inputs, **options)
    ids = torch.cat([inputs["input_ids"], torch.tensor(output_ids)], 1)
    mask = torch.cat([inputs["attention_mask"], torch.ones_like(torch.tensor(output_ids))], 1)
    places = slice(inputs["input_ids"].shape[1] - 1, -1)

    def block(model: Any) -> torch.Tensor:
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask).logits[:, places]
        return logits.float().softmax(-1)  # [rows, steps, vocab]

    step = torch.stack([torch.stack(row) for row in steps]).float().softmax(-1)
    of_blocks = (block(half(family)) - step).abs().sum(-1).mean() / 2
    of_bf16 = (block(tiny.model(family)) - step).abs().sum(-1).mean() / 2
    assert 0 < of_blocks <= 1.5 * of_bf16
    assert of_bf16 < 0.05


def test_a_colder_text_would_be_told_apart() -> None:
    assert p_same(sampled("qwen2", "noisy-4", 0.4), sampled("qwen2", "plain")) < ERROR


def test_warmer_codes_would_be_told_apart() -> None:
    plain = drawn(sooner.Autoregressive(), 2)
    assert p_same(drawn(sooner.CoupledJacobi(8), 1, 1.5), plain) < ERROR
