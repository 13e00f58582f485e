"""What holds in bf16 when tokens are drawn: the distribution, up to the model's own rounding.

A method's tokens have the distribution that the blocks' forwards give, which in bf16 is not to the
last bit that of single steps. Two things are tested: the block's distribution is no further from
the step's than bf16 itself is from fp32, and samples of the method can't be told from samples of
plain decoding, at a size that tells another temperature.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency
from test_bf16_parity import half, half_canvas

import method_matrix as matrix
import sooner
import tiny
import tiny_canvas
import tiny_policy
from fakes import ERROR
from sooner.parity import reference_run

pytestmark = pytest.mark.slow

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


def test_the_comparison_has_power() -> None:
    torch.manual_seed(0)
    p = torch.tensor([0.5, 0.3, 0.2])
    first, other = (torch.multinomial(p, 3000, True)[:, None] for _ in range(2))
    skewed = torch.multinomial(torch.tensor([0.42, 0.33, 0.25]), 3000, True)[:, None]
    assert p_same(first, other) > ERROR
    assert p_same(first, skewed) < ERROR


@functools.cache
def sampled(family: str, method: str, temperature: float = 1.0) -> torch.Tensor:
    """Four tokens behind one prompt, `[SAMPLES, 4]`, of the three likeliest each."""
    model, inputs = half(family), tiny.inputs(family)
    torch.manual_seed(hash_of(method))
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


def hash_of(name: str) -> int:
    return sum(name.encode())


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


def test_drawn_actions_have_plain_decodings_distribution() -> None:
    policy = tiny_policy.policy(head=True, horizon=1)
    policy.model.to(torch.bfloat16)
    seen = tiny_policy.observations(1) * 100

    def actions(method: str, first: int, temperature: float = 0.3) -> torch.Tensor:
        """A token in the middle, `[800, 1]`."""
        made = [
            action
            for seed in range(first, first + 8)
            for action in policy.act(seen, method=method, temperature=temperature, seed=seed)
        ]
        return torch.tensor(np.stack([action.ids.reshape(-1)[2:3] for action in made]))

    plain = actions("plain", 0)
    assert p_same(actions("strict", 100), plain) > ERROR
    assert p_same(actions("strict", 200, 1.0), plain) < ERROR


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
