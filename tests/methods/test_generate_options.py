"""Every field of a generation config does through both doors what it does in `generate`, or is
refused through both."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_generate import characters
from test_processors import on_a_leash
from transformers import CompileConfig, GenerationConfig, WatermarkingConfig

import sooner
import tiny
from methods.doors import DOORS, both_doors, refused
from sooner.engine import hf_border

ROWS, NEW = 2, 12
GREEDY: dict[str, Any] = {
    "max_new_tokens": NEW, "eos_token_id": None, "pad_token_id": tiny.PAD, "do_sample": False,
}  # fmt: skip
SINGLE_CHOICE: dict[str, Any] = {"do_sample": True, "top_k": 0}
"""What samples, with an option that leaves one token of each place."""

INPUTS = tiny.inputs("qwen2", "text", ROWS, seed=2)
FREE = tiny.model("qwen2").generate(**INPUTS, **GREEDY)
WIDTH = FREE.shape[1] - NEW
GENERATED = FREE[:, WIDTH:].tolist()
STOP = characters().decode(GENERATED[0][5:7])

HONOURED: dict[str, dict[str, Any]] = {
    "bad_words_ids": {"bad_words_ids": [[GENERATED[0][2]], GENERATED[1][1:3]]},
    "begin_suppress_tokens": {"begin_suppress_tokens": [GENERATED[0][0]]},
    "cache_implementation": {"cache_implementation": "static"},
    "do_sample": {"do_sample": True, "top_k": 1},
    "encoder_no_repeat_ngram_size": {"encoder_no_repeat_ngram_size": 1},
    "encoder_repetition_penalty": {"encoder_repetition_penalty": 2.0},
    "eos_token_id": {"eos_token_id": [GENERATED[0][4], GENERATED[1][7]]},
    "epsilon_cutoff": {**SINGLE_CHOICE, "epsilon_cutoff": 0.99},
    "eta_cutoff": {**SINGLE_CHOICE, "eta_cutoff": 0.99, "temperature": 1e-3},
    "exponential_decay_length_penalty": {
        "exponential_decay_length_penalty": (2, 2.0), "eos_token_id": GENERATED[0][9],
    },
    "forced_bos_token_id": {"forced_bos_token_id": 33},
    "forced_eos_token_id": {"forced_eos_token_id": 77},
    "max_length": {"max_length": WIDTH + 5, "max_new_tokens": None},
    "max_new_tokens": {"max_new_tokens": 3},
    "max_time": {"max_time": 1e-6},
    "min_length": {"min_length": WIDTH + 8, "eos_token_id": GENERATED[0][2]},
    "min_new_tokens": {"min_new_tokens": 8, "eos_token_id": GENERATED[0][2]},
    "min_p": {**SINGLE_CHOICE, "min_p": 1.0},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 1},
    "num_return_sequences": {"num_return_sequences": 2, "do_sample": True, "top_k": 1},
    "pad_token_id": {"pad_token_id": 3, "eos_token_id": GENERATED[0][4]},
    "prefill_chunk_size": {"prefill_chunk_size": 3},
    "remove_invalid_values": {"remove_invalid_values": True},
    "renormalize_logits": {"renormalize_logits": True},
    "repetition_penalty": {"repetition_penalty": 2.0},
    "return_dict_in_generate": {"return_dict_in_generate": True},
    "sequence_bias": {"sequence_bias": [[[GENERATED[0][1]], -6.0], [GENERATED[1][0:2], -8.0]]},
    "stop_strings": {"stop_strings": STOP, "eos_token_id": tiny.EOS},  # or rows end together
    "suppress_tokens": {"suppress_tokens": [GENERATED[0][0], GENERATED[1][2]]},
    "temperature": {**SINGLE_CHOICE, "temperature": 1e-4},
    "token_healing": {"token_healing": True},
    "top_h": {**SINGLE_CHOICE, "top_h": 1e-4},
    "top_k": {"do_sample": True, "top_k": 1},
    "top_p": {**SINGLE_CHOICE, "top_p": 1e-6},
    "typical_p": {**SINGLE_CHOICE, "typical_p": 1e-6},
    "watermarking_config": {"watermarking_config": WatermarkingConfig(bias=4.0)},
    "prefix_allowed_tokens_fn": {"prefix_allowed_tokens_fn": on_a_leash},
    "samples_and_penalty": {
        "num_return_sequences": 2, "do_sample": True, "top_k": 1, "repetition_penalty": 2.0,
    },
    "several": {
        "repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 8,
        "bad_words_ids": [[GENERATED[0][3]]], "eos_token_id": GENERATED[0][2],
    },
}  # fmt: skip
UNCHANGED = {
    "cache_implementation", "do_sample", "epsilon_cutoff", "eta_cutoff", "forced_bos_token_id",
    "min_p", "prefill_chunk_size", "remove_invalid_values", "renormalize_logits",
    "return_dict_in_generate", "temperature", "top_h", "top_k", "top_p",
}  # fmt: skip
"""Options under which these prompts are answered as without."""

REFUSED: dict[str, Any] = {
    "assistant_early_exit": 1, "constraints": [1], "dola_layers": "low", "force_words_ids": [[3]],
    "guidance_scale": 1.5, "num_beams": 2, "output_attentions": True,
    "output_hidden_states": True, "output_logits": True, "output_scores": True,
    "penalty_alpha": 0.5, "prompt_lookup_num_tokens": 3, "use_cache": False, "use_mtp": True,
}  # fmt: skip
NO_EFFECT: dict[str, Any] = {
    "assistant_confidence_threshold": 0.1, "assistant_ensemble_weight": 0.3,
    "assistant_lookbehind": 3, "bos_token_id": 2, "cache_config": {"a": 1},
    "compile_config": CompileConfig(), "decoder_start_token_id": 3, "disable_compile": True,
    "diversity_penalty": 0.5, "early_stopping": True, "length_penalty": 2.0, "low_memory": True,
    "max_cache_len": 3, "max_matching_ngram_size": 2, "num_assistant_tokens": 3,
    "num_assistant_tokens_schedule": "constant", "num_beam_groups": 2, "speculation_type": "mtp",
    "target_lookbehind": 4,
}  # fmt: skip
"""Options of beams, assistants and other loops, which have none in a greedy `generate`
either.
"""

NOT_PER_CALL = {
    "_commit_hash", "_from_model_config", "continuous_batching_config", "is_assistant",
    "transformers_version",
}  # fmt: skip
"""Not of one call."""


def fields() -> set[str]:
    return set(vars(GenerationConfig()))


TAKEN = {*fields(), "prefix_allowed_tokens_fn"}


def test_every_field_is_here() -> None:
    assert fields() <= {*HONOURED, *REFUSED, *NO_EFFECT, *NOT_PER_CALL}


def answer(door: str, options: dict[str, Any], method: sooner.Method | None) -> Any:
    """The sequences through a door, or of HF's own `generate` without a method."""
    model, inputs = tiny.model("qwen2"), dict(INPUTS)
    options = {**GREEDY, **options}
    if {"stop_strings", "token_healing"} & options.keys():
        options["tokenizer"] = tokenizer()
    if door == "session" and method is not None:
        return sooner.generate(model, inputs, method, **options).sequences
    output = model.generate(**inputs, **options, custom_generate=method)
    return output if isinstance(output, torch.Tensor) else output.sequences


def tokenizer() -> Any:
    made = characters()
    made.pad_token, made.bos_token = chr(32 + tiny.PAD), chr(32)
    return made


METHODS = {
    "prompt-lookup": sooner.PromptLookup(num_draft_tokens=4),
    "speculative": sooner.Speculative(tiny.noisy("qwen2"), num_draft_tokens=4),
}


CALLS = [
    (name, way, DOORS[(number + place) % 2])
    for number, name in enumerate(name for name in HONOURED if HONOURED[name].keys() <= TAKEN)
    for place, way in enumerate(METHODS)
]
"""Every option by every method and through both doors, which take turns."""


@pytest.mark.parametrize(("name", "way", "door"), CALLS)
def test_an_option_gives_the_ids_of_generate(name: str, way: str, door: str) -> None:
    expected = answer("", HONOURED[name], None)
    assert torch.equal(expected, FREE) == (name in UNCHANGED), "does the option matter here?"
    assert torch.equal(answer(door, HONOURED[name], METHODS[way]), expected)


@both_doors
@pytest.mark.parametrize("name", sorted(REFUSED.keys() & fields()))
def test_an_option_is_refused(name: str, door: str) -> None:
    known = hf_border.REFUSED.get(name)
    words = [name] if known is None else [f"{name}={REFUSED[name]!r}", known, "leave it unset"]
    with refused(sooner.UnsupportedError, *words):
        answer(door, {name: REFUSED[name]}, METHODS["prompt-lookup"])


@both_doors
@pytest.mark.parametrize("name", sorted(NO_EFFECT.keys() & fields()))
def test_an_option_has_no_effect(name: str, door: str) -> None:
    for method in (None, METHODS["prompt-lookup"]):
        assert torch.equal(answer(door, {name: NO_EFFECT[name]}, method), FREE)


@both_doors
def test_an_assistant_with_a_method_is_refused(door: str) -> None:
    with pytest.raises(sooner.UnsupportedError, match="assistant_model"):
        answer(door, {"assistant_model": tiny.model("qwen2")}, METHODS["prompt-lookup"])
