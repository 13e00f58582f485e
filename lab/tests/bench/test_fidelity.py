"""The acceptance ratio against its definition, drawn and counted literally."""

from __future__ import annotations

import pytest
import torch
from transformers import TemperatureLogitsWarper, TopKLogitsWarper

import sooner
import tiny
from sooner.errors import SoonerError
from sooner_lab.bench.fidelity import acceptance_ratio, compare_distributions, teacher_forced

FAMILIES = ("llava_onevision", "qwen2_5_vl", "qwen3_vl")
LOSSY = sooner.FastV(ratio=0.8)


def output(family: str, prefill: object = None, **options: object) -> list[int]:
    model, inputs = tiny.model(family), tiny.inputs(family, "video")
    options = {"max_new_tokens": 12, "eos_token_id": None, **options}
    return sooner.generate(model, inputs, prefill=prefill, **options).tokens[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_accepts_all_of_its_text(family: str) -> None:
    tokens = output(family)
    judged = acceptance_ratio(tiny.model(family), tiny.inputs(family, "video"), tokens, None)
    assert judged.tokens == 12
    assert judged.greedy == 1.0
    assert judged.sampled == judged.overlap == pytest.approx(1.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_reading_a_text_gives_the_distributions_that_decoding_had(family: str) -> None:
    """Greedy text under the lossy model is the lossy model's own argmax at each place."""
    model, inputs = tiny.model(family), tiny.inputs(family, "video")
    for pruner, stepwise in ((LOSSY, False), (sooner.DyCoke(layer=1), True)):
        tokens = output(family, pruner)
        q = teacher_forced(model, inputs, tokens, prefill=pruner, stepwise=stepwise)
        assert q.argmax(1).tolist() == tokens
        step_by_step = teacher_forced(model, inputs, tokens, prefill=pruner, stepwise=True)
        torch.testing.assert_close(q, step_by_step, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_lossy_text_is_accepted_in_part(family: str) -> None:
    model, inputs = tiny.model(family), tiny.inputs(family, "video")
    tokens = output(family, LOSSY)
    judged = acceptance_ratio(model, inputs, tokens, LOSSY)
    assert 0 < judged.overlap < 0.999
    plain = teacher_forced(model, inputs, tokens).argmax(1).tolist()
    same = sum(left == right for left, right in zip(plain, tokens, strict=True))
    assert judged.greedy == pytest.approx(same / len(tokens))


def test_overlap_is_what_speculative_sampling_accepts_on_average() -> None:
    """Draw x from q, accept with min(1, p/q): 200,000 times, within four standard errors."""
    generator = torch.Generator().manual_seed(0)
    p, q = (torch.rand(1, 7, generator=generator).softmax(1) for _ in range(2))
    draws = torch.multinomial(q[0], 200_000, replacement=True, generator=generator)
    odds = (p[0] / q[0])[draws].clamp(max=1)
    accepted = torch.rand(len(draws), generator=generator) < odds
    overlap = compare_distributions(p, q, [0]).overlap
    error = (overlap * (1 - overlap) / len(draws)) ** 0.5
    assert abs(float(accepted.float().mean()) - overlap) < 4 * error
    per_token = [compare_distributions(p, q, [token]).sampled for token in range(7)]
    assert float(torch.tensor(per_token) @ q[0]) == pytest.approx(overlap, abs=1e-6)


def test_both_sides_are_processed_alike() -> None:
    """With one candidate left, sampling is greedy: the ratio is the share of equal argmaxes."""
    model, inputs = tiny.model("qwen3_vl"), tiny.inputs("qwen3_vl", "video")
    tokens = output("qwen3_vl", LOSSY)
    processors = [TemperatureLogitsWarper(0.7), TopKLogitsWarper(1)]
    judged = acceptance_ratio(model, inputs, tokens, LOSSY, processors=processors)
    assert judged.sampled == judged.overlap == pytest.approx(judged.greedy)


def test_several_prompts_or_no_text_are_refused() -> None:
    model = tiny.model("qwen3_vl")
    with pytest.raises(SoonerError, match="2 prompts"):
        acceptance_ratio(model, tiny.inputs("qwen3_vl", "video", 2), [1, 2], None)
    with pytest.raises(SoonerError, match="0 tokens"):
        acceptance_ratio(model, tiny.inputs("qwen3_vl", "video"), [], None)
