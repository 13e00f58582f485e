"""Mistakes of a first call from Python get a line that says what to pass, or just work."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import sooner
import tiny
from sooner.errors import SoonerError

IDS = torch.tensor([[7, 8, 9, 7, 8, 9]])
INPUTS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
OPTIONS: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False}


def model(seed: int = 0) -> Any:
    return tiny.model("qwen2", seed=seed)


@pytest.mark.parametrize("method", ["prompt-lookup", sooner.PromptLookup, sooner.PromptLookup()])
def test_a_method_is_an_instance_a_class_or_a_name(method: Any) -> None:
    expected = sooner.generate(model(), INPUTS, **OPTIONS).tokens
    result = sooner.generate(model(), INPUTS, method, **OPTIONS)
    assert result.tokens == expected
    assert result.stats.method == "prompt-lookup"
    engine = sooner.Engine(model(), method)
    request = engine.add_request(INPUTS, **OPTIONS)
    engine.run()
    assert request.tokens == expected
    assert engine.method.name == "prompt-lookup"


@pytest.mark.parametrize(
    ("method", "line"),
    [
        ("prompt-lokup", r"unknown method 'prompt-lokup' \(did you mean 'prompt-lookup'\?\)"),
        (
            "speculative",
            r"method 'speculative' needs draft; pass sooner\.Speculative\(draft=\.\.\.\)",
        ),
        (sooner.SDTree, r"the class SDTree needs draft; pass sooner\.SDTree\(draft=\.\.\.\)"),
        (model, r"method is a function; pass a method such as sooner\.PromptLookup\(\)"),
        (5, r"method is a int; pass a method"),
    ],
)
def test_what_is_no_method_is_refused_with_the_way_out(method: Any, line: str) -> None:
    with pytest.raises(SoonerError, match=line) as caught:
        sooner.generate(model(), INPUTS, method, **OPTIONS)
    assert "\n" not in str(caught.value)
    with pytest.raises(SoonerError, match=line):
        sooner.Engine(model(), method)
    with pytest.raises(SoonerError, match=line):
        sooner.Engine(model()).add_request(INPUTS, method=method, **OPTIONS)


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        ("hello", r"inputs are a text; .* tokenizer\(text, return_tensors='pt'\)"),
        (["hello"], r"inputs are a list; .* tokenizer\(text, return_tensors='pt'\)"),
        (IDS, r"inputs are a Tensor; .* \{'input_ids': ids\}"),
        (None, r"inputs are a NoneType; .* \{'input_ids': ids\}"),
    ],
)
def test_inputs_that_are_none_are_refused_with_the_way_out(inputs: Any, line: str) -> None:
    with pytest.raises(SoonerError, match=line):
        sooner.generate(model(), inputs, **OPTIONS)
    with pytest.raises(SoonerError, match=line):
        sooner.Engine(model()).add_request(inputs, **OPTIONS)


@pytest.mark.parametrize("kind", [sooner.Speculative, sooner.SDTree, sooner.ParallelVLM])
def test_a_draft_by_name_is_refused(kind: Any) -> None:
    line = r"draft is the text 'org/small'; load the model .*from_pretrained\('org/small'\)"
    with pytest.raises(SoonerError, match=line):
        sooner.generate(model(), INPUTS, kind("org/small"), **OPTIONS)
    with pytest.raises(SoonerError, match=line):
        model().generate(**INPUTS, custom_generate=kind("org/small"), **OPTIONS)


def test_a_model_by_name_or_class_is_refused() -> None:
    with pytest.raises(SoonerError, match="model is the text 'org/large'; load the model"):
        sooner.generate("org/large", INPUTS, **OPTIONS)
    with pytest.raises(SoonerError, match="model is the text 'org/large'; load the model"):
        sooner.Engine("org/large")
    with pytest.raises(SoonerError, match="model is the class Qwen2ForCausalLM; pass a model"):
        sooner.generate(type(model()), INPUTS, **OPTIONS)


@pytest.mark.parametrize("name", ["model", "draft"])
def test_a_model_in_training_mode_is_refused(name: str) -> None:
    target, draft = model(), model(1)
    (target if name == "model" else draft).train()
    line = rf"{name} is a Qwen2ForCausalLM in training mode, .*; call its eval\(\) first"
    method = sooner.Speculative(draft)
    try:
        with pytest.raises(SoonerError, match=line):
            sooner.generate(target, INPUTS, method, **OPTIONS)
        with pytest.raises(SoonerError, match=line):
            target.generate(**INPUTS, custom_generate=method, **OPTIONS)
    finally:
        target.eval()
        draft.eval()


def test_a_generation_prints_in_a_line() -> None:
    result = sooner.generate(model(), INPUTS, "prompt-lookup", **OPTIONS)
    text = repr(result)
    assert "8 new tokens" in text
    assert "method=prompt-lookup, mode=exact" in text
    assert "tensor" not in text
    assert len(text) < 200
    assert "\n" not in text
