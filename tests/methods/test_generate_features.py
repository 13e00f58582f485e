"""Stopping, results and configs of `generate` are through both doors what they are there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    StoppingCriteria,
    StoppingCriteriaList,
)

import sooner
import tiny
from methods.doors import FAMILY, GREEDY, KIND, both_doors, decode, methods


class AfterTokens(StoppingCriteria):
    """Ends a row after its own number of new tokens."""

    def __init__(self, width: int, counts: list[int]) -> None:
        self.width, self.counts = width, torch.tensor(counts)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        return torch.full((len(input_ids),), input_ids.shape[1] - self.width) >= self.counts


@both_doors
def test_custom_stopping_criteria_end_each_row_where_generate_does(
    door: str, method: sooner.Method
) -> None:
    inputs = tiny.inputs(FAMILY, KIND, 3)
    criteria = StoppingCriteriaList([AfterTokens(inputs["input_ids"].shape[1], [5, 1, 9])])
    options = {**GREEDY, "eos_token_id": tiny.EOS, "stopping_criteria": criteria}
    expected = tiny.model(FAMILY).generate(**inputs, **options)
    assert decode(door, method, inputs, **options).tolist() == expected.tolist()


@both_doors
def test_max_time_ends_decoding_early(door: str, method: sooner.Method) -> None:
    inputs = tiny.inputs(FAMILY, KIND, 2)
    sequences = decode(door, method, inputs, **{**GREEDY, "max_new_tokens": 200}, max_time=1e-6)
    assert sequences.shape[1] == inputs["input_ids"].shape[1] + 1


def characters(size: int = tiny.VOCAB, shift: int = 0) -> PreTrainedTokenizerFast:
    """A real tokenizer of one-character tokens, whose ids are shifted."""
    vocabulary = {chr(32 + (token + shift) % size): token for token in range(size)}
    built = Tokenizer(models.WordLevel(vocabulary, unk_token=chr(32)))
    built.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    built.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=built, name_or_path=f"chars-{size}-{shift}")


@both_doors
def test_stop_strings_of_a_config_end_the_text_where_generate_does(
    door: str, method: sooner.Method
) -> None:
    inputs, tokenizer = tiny.inputs(FAMILY, KIND), characters()
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    stop = tokenizer.decode(free[0, -8:-6])
    assert len(stop) == 2
    config = GenerationConfig(**GREEDY, stop_strings=stop)
    options: dict[str, Any] = {"generation_config": config, "tokenizer": tokenizer}
    expected = tiny.model(FAMILY).generate(**inputs, **options)
    assert expected.shape[1] < inputs["input_ids"].shape[1] + GREEDY["max_new_tokens"]
    assert decode(door, method, inputs, **options).tolist() == expected.tolist()


def test_stop_strings_without_a_tokenizer_are_refused() -> None:
    with pytest.raises(sooner.SoonerError, match="stop_strings='ab' needs tokenizer="):
        decode("session", sooner.Autoregressive(), tiny.inputs(FAMILY), **GREEDY, stop_strings="ab")


# What comes back


@pytest.mark.parametrize("rows", [1, 3])
def test_a_dictionary_holds_the_sequences_and_the_statistics(rows: int) -> None:
    inputs, method = tiny.inputs(FAMILY, KIND, rows), methods()["speculative"]
    options = {**GREEDY, "return_dict_in_generate": True}
    expected = tiny.model(FAMILY).generate(**inputs, **options)
    output = tiny.model(FAMILY).generate(**inputs, **options, custom_generate=method)
    assert output.sequences.tolist() == expected.sequences.tolist()
    assert output["sequences"] is output.sequences
    assert (output.stats.mode, output.stats.method) == ("exact", "speculative")
    assert output.stats.tokens == rows * GREEDY["max_new_tokens"]


@both_doors
@pytest.mark.parametrize("pad", [None, 3])
def test_a_generation_config_is_honoured_and_left_alone(door: str, pad: int | None) -> None:
    inputs = tiny.inputs(FAMILY, KIND, 3)
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    end = free[0, inputs["input_ids"].shape[1] + 3].item()
    config = GenerationConfig(max_new_tokens=14, eos_token_id=[end, 1], pad_token_id=pad)
    before = config.to_dict()
    expected = tiny.model(FAMILY).generate(**inputs, generation_config=config)
    ours = decode(door, methods()["speculative"], inputs, generation_config=config)
    assert ours.tolist() == expected.tolist()
    assert config.to_dict() == before
