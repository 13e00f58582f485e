"""What `generate` prepares once serves later requests, which say what they say alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationMixin

import sooner
import tiny

FAMILY = "qwen2_5_vl"


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One entry for each call that HF's `generate` prepares for an engine."""
    calls: list[None] = []
    prepare = GenerationMixin._prepare_generation_config

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(None)
        return prepare(*args, **options)

    monkeypatch.setattr(GenerationMixin, "_prepare_generation_config", counted)
    return calls


def answers(engine: sooner.Engine, prompts: list[dict[str, Any]], **options: Any) -> list[Any]:
    requests = [engine.add_request(inputs, **options) for inputs in prompts]
    engine.run()
    for request in requests:
        assert request.error is None, request.error
    return [request.tokens for request in requests]


def by_hf(inputs: dict[str, Any], **options: Any) -> list[list[int]]:
    with torch.inference_mode():
        ids = tiny.model(FAMILY).generate(**inputs, **options)
    return ids[:, inputs["input_ids"].shape[1] :].tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"max_new_tokens": 9, "do_sample": False, "eos_token_id": [3, 5]},
        {"max_new_tokens": 9, "do_sample": False, "repetition_penalty": 1.3, "eos_token_id": None},
    ],
    ids=["ends", "penalty"],
)
def test_calls_with_the_same_options_are_prepared_once(prepared: list[None], options: Any) -> None:
    prompts = [tiny.inputs(FAMILY, "image", seed=seed) for seed in range(3)]
    prompts.append({**prompts[0], "input_ids": prompts[0]["input_ids"].clone()})
    prompts[-1]["attention_mask"] = prompts[0]["attention_mask"].clone()
    prompts[-1]["attention_mask"][0, 0] = 0  # padding on the left
    expected = [by_hf(inputs, **options) for inputs in prompts]
    prepared.clear()
    assert answers(sooner.Engine(tiny.model(FAMILY)), prompts, **options) == expected
    assert len(prepared) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.5},
        {"no_repeat_ngram_size": 2},
        {"num_return_sequences": 2},
    ],
    ids=str,
)
def test_what_asks_for_something_else_is_prepared_anew(
    prepared: list[None], changed: dict[str, Any]
) -> None:
    options = {"do_sample": True, "max_new_tokens": 4, "seed": 1, "temperature": 0.9}
    engine, inputs = sooner.Engine(tiny.model(FAMILY)), tiny.inputs(FAMILY)
    for arguments in (options, options | changed, options):
        request = engine.add_request(inputs, **arguments)
        engine.run()
        assert request.error is None
    assert len(prepared) == 2
