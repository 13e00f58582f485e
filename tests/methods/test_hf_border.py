"""The border to transformers: both ways in say the same of a call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LogitsProcessor, StoppingCriteria

import sooner
import tiny
from sooner.engine.hf_border import Call, prepare, receive

FAMILY = "qwen2_5_vl"


class Halve(LogitsProcessor):
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores / 2


class Never(StoppingCriteria):
    def __call__(self, input_ids: torch.Tensor, scores: Any, **options: Any) -> torch.Tensor:
        return torch.zeros(len(input_ids), dtype=torch.bool)


OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"max_new_tokens": 5},
    "default length": {},
    "max_length": {"max_length": 90},
    "drawn": {"max_new_tokens": 5, "do_sample": True, "temperature": 0.5, "top_p": 0.9},
    "top-k and min-p": {"max_new_tokens": 5, "do_sample": True, "top_k": 7, "min_p": 0.1},
    "typical": {"max_new_tokens": 5, "do_sample": True, "typical_p": 0.9, "top_k": 9},
    "penalties": {"max_new_tokens": 5, "repetition_penalty": 1.3, "no_repeat_ngram_size": 3},
    "forbidden": {"max_new_tokens": 5, "bad_words_ids": [[3], [4]], "suppress_tokens": [5]},
    "bias": {"max_new_tokens": 5, "sequence_bias": [[[3], 1.5]], "repetition_penalty": 1.1},
    "least": {"max_new_tokens": 9, "min_new_tokens": 4},
    "ends": {"max_new_tokens": 5, "eos_token_id": [3, 4]},
    "no end": {"max_new_tokens": 5, "eos_token_id": None},
    "several": {"max_new_tokens": 5, "do_sample": True, "num_return_sequences": 2},
    "chunks": {"max_new_tokens": 5, "prefill_chunk_size": 4},
    "config": {"generation_config": GenerationConfig(max_new_tokens=6, temperature=0.7)},
    "objects": {
        "max_new_tokens": 5, "logits_processor": [Halve()], "stopping_criteria": [Never()],
        "do_sample": True,
    },
    "time": {"max_new_tokens": 5, "max_time": 60.0},
}  # fmt: skip


def received(model: Any, inputs: dict[str, Any], options: dict[str, Any]) -> Call:
    """What `generate` hands to a custom loop."""
    calls = []

    class Loop(sooner.Autoregressive):
        def __call__(
            self, model: Any, input_ids: torch.Tensor, logits_processor: Any = None,
            stopping_criteria: Any = None, generation_config: Any = None, streamer: Any = None,
            synced_gpus: bool = False, **kwargs: Any,
        ) -> torch.Tensor:  # fmt: skip
            calls.append(
                receive(
                    model, input_ids, logits_processor, stopping_criteria, generation_config,
                    synced_gpus, kwargs,
                )
            )  # fmt: skip
            return input_ids

    model.generate(**inputs, **options, custom_generate=Loop())
    return calls[0]


def plainly(value: Any) -> Any:
    """A value by its contents."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [plainly(each) for each in value]
    if isinstance(value, (LogitsProcessor, StoppingCriteria)):
        known = {
            name: plainly(each) for name, each in vars(value).items() if "timestamp" not in name
        }
        return type(value), known
    return value


@pytest.mark.parametrize("kind", ["text", "image", "uneven"])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_call_is_prepared_as_generate_prepares_it(name: str, kind: str) -> None:
    model, inputs = tiny.model(FAMILY), tiny.inputs(FAMILY, kind, 3 if kind == "uneven" else 1)
    theirs, ours = received(model, inputs, OPTIONS[name]), prepare(model, inputs, OPTIONS[name])
    assert (ours.pad, ours.prefill_chunk) == (theirs.pad, theirs.prefill_chunk)
    for field in vars(theirs.params):
        assert plainly(getattr(ours.params, field)) == plainly(getattr(theirs.params, field)), field
    handed = dict(theirs.inputs)
    if bool((handed.get("attention_mask", torch.ones(1)) == 1).all()):
        handed.pop("attention_mask", None)  # before transformers 5.23 it is handed over
    assert ours.inputs.keys() == handed.keys()
    for key, value in handed.items():
        assert plainly(ours.inputs[key]) == plainly(value), key


def test_padding_without_a_mask_is_seen_as_generate_sees_it() -> None:
    model, ids = tiny.model("llama"), tiny.inputs("llama", "text")["input_ids"].clone()
    ids[:, :2] = 0
    options = {"max_new_tokens": 3, "pad_token_id": 0, "eos_token_id": 1}
    theirs, ours = (way(model, {"input_ids": ids}, options) for way in (received, prepare))
    assert ours.inputs["attention_mask"].tolist() == theirs.inputs["attention_mask"].tolist()
    assert not ours.inputs["attention_mask"][:, :2].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new_tokens": 3, "unknown": 1}, "unknown"),
        ({"max_new_tokens": 3, "temperature": -1.0, "do_sample": True}, "temperature"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
    ],
)
def test_what_generate_refuses_is_refused_in_its_words(
    options: dict[str, Any], message: str
) -> None:
    model, inputs = tiny.model(FAMILY), tiny.inputs(FAMILY, "text")
    refusals = []
    for way in (model.generate, lambda **every: prepare(model, inputs, options)):
        with pytest.raises(ValueError, match=message) as caught:
            way(**inputs, **options)
        refusals.append(str(caught.value))
    assert refusals[0] == refusals[1]
