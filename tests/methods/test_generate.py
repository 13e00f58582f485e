"""Runs of `generate` through both doors: where they end, what they return, stream and count, and
what they leave behind in the model: nothing."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
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
from transformers.generation.streamers import BaseStreamer

import sooner
import tiny
from methods.doors import FAMILY, GREEDY, KIND, both_doors, decode, methods
from recorders import hook_count
from sooner.registry import method_types


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


def characters() -> PreTrainedTokenizerFast:
    """A real tokenizer of one-character tokens."""
    vocabulary = {chr(32 + token): token for token in range(tiny.VOCAB)}
    built = Tokenizer(models.WordLevel(vocabulary, unk_token=chr(32)))
    built.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    built.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=built)


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


# What comes in


def test_token_types_may_be_left_to_generate() -> None:
    """Qwen's processors return them; a caller that drops them gets what `generate` would give."""
    inputs = tiny.inputs("qwen2_5_vl", "text", 2)
    assert "mm_token_type_ids" not in inputs
    inputs["mm_token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    expected = tiny.model("qwen2_5_vl").generate(**inputs, **GREEDY)
    ours = sooner.generate(tiny.model("qwen2_5_vl"), inputs, sooner.PromptLookup(), **GREEDY)
    assert ours.sequences.tolist() == expected.tolist()


def test_a_text_prompt_after_a_picture_is_not_mispositioned() -> None:
    """Qwen models remember the last prompt's offset; the next prompt must not inherit it."""
    model, text = tiny.model("qwen2_5_vl"), tiny.inputs("qwen2_5_vl", "text", 2)
    before = sooner.generate(model, text, sooner.PromptLookup(), **GREEDY).sequences
    sooner.generate(model, tiny.inputs("qwen2_5_vl", "images", 1), **GREEDY)
    after = sooner.generate(model, text, sooner.PromptLookup(), **GREEDY).sequences
    assert torch.equal(before, after)


# What is counted


def test_statistics_add_up(method: sooner.Method) -> None:
    result = sooner.generate(tiny.model(FAMILY), tiny.inputs(FAMILY, KIND, 3), method, **GREEDY)
    stats = result.stats
    assert stats.tokens == sum(len(row) for row in result.tokens) == 42
    assert stats.decode_tokens == 39
    assert stats.num_spec_steps + stats.num_accepted_draft_tokens == stats.decode_tokens
    # Steps without a draft are in no run: nothing could be rejected.
    assert 0 <= stats.decode_tokens - sum(stats.runs) <= stats.acceptance_histogram[0]
    assert bool(stats.runs) == bool(stats.num_draft_tokens)
    assert stats.num_accepted_draft_tokens <= stats.num_draft_tokens
    assert stats.nfe >= 1 + stats.num_spec_steps / 3
    assert sum(len(times) for times in stats.verify_seconds.values()) == stats.nfe - 1
    assert all(seconds >= 0 for seconds in stats.seconds.values())


def test_draft_tokens_after_an_end_are_not_counted_as_accepted() -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    output = free[0, inputs["input_ids"].shape[1] :].tolist()
    place = next(index for index in range(4, 14) if output[index] not in output[:index])
    itself = sooner.Speculative(tiny.model(FAMILY), num_draft_tokens=12)
    stats = sooner.generate(
        tiny.model(FAMILY), inputs, itself, max_new_tokens=20, eos_token_id=output[place]
    ).stats
    assert stats.acceptance_histogram == {place: 1}
    assert stats.decode_tokens == place


# What is streamed


class Recorder(BaseStreamer):
    """Keeps every call, as a list of token ids or the word `end`."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def put(self, value: torch.Tensor) -> None:
        self.calls.append(value.tolist())

    def end(self) -> None:
        self.calls.append("end")


@both_doors
def test_a_streamer_is_called_just_as_by_generate(door: str, method: sooner.Method) -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    reference, ours = Recorder(), Recorder()
    tiny.model(FAMILY).generate(**inputs, **GREEDY, streamer=reference)
    decode(door, method, inputs, **GREEDY, streamer=ours)
    assert ours.calls == reference.calls
    assert ours.calls[0] == inputs["input_ids"].tolist()
    assert ours.calls[-1] == "end"


@both_doors
def test_a_streamer_gets_nothing_after_an_end_inside_a_draft(door: str) -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    end = free[0, inputs["input_ids"].shape[1] + 5].item()
    options = {**GREEDY, "eos_token_id": end}
    reference, ours = Recorder(), Recorder()
    tiny.model(FAMILY).generate(**inputs, **options, streamer=reference)
    itself = sooner.Speculative(tiny.model(FAMILY), num_draft_tokens=8)
    decode(door, itself, inputs, **options, streamer=ours)
    assert ours.calls == reference.calls


@both_doors
def test_a_streamer_for_several_rows_is_refused(door: str) -> None:
    with pytest.raises(sooner.UnsupportedError, match="2 rows"):
        decode(door, sooner.Autoregressive(), tiny.inputs(FAMILY, KIND, 2), **GREEDY,
               streamer=Recorder())  # fmt: skip


def test_a_streamer_of_an_outer_generate_is_not_used() -> None:
    """A streamer is looked for in the caller's frame: only that of this very call counts."""
    inner = []

    class Nosy(Recorder):
        def put(self, value: torch.Tensor) -> None:
            super().put(value)
            if not inner:
                inner.append(1)
                decode("custom_generate", sooner.PromptLookup(), tiny.inputs(FAMILY), **GREEDY)

    reference, ours, inputs = Recorder(), Nosy(), tiny.inputs(FAMILY, KIND)
    tiny.model(FAMILY).generate(**inputs, **GREEDY, streamer=reference)
    decode("custom_generate", sooner.Autoregressive(), inputs, **GREEDY, streamer=ours)
    assert ours.calls == reference.calls


@both_doors
def test_on_tokens_tells_every_token_of_every_row_once_and_in_order(
    door: str, method: sooner.Method
) -> None:
    inputs, received = tiny.inputs(FAMILY, KIND, 3), [[], [], []]
    drafted_counts = []

    def tell(row: int, tokens: list[int], drafted: int) -> None:
        received[row] += tokens
        drafted_counts.append((drafted, len(tokens)))

    free = decode(door, method, inputs, **GREEDY, on_tokens=tell)
    assert received == free[:, inputs["input_ids"].shape[1] :].tolist()
    assert all(drafted in (count, count - 1) for drafted, count in drafted_counts)


# What is left behind


def attributes(model: torch.nn.Module) -> dict[str, Any]:
    """Every plain attribute of every module."""
    skipped = ("_parameters", "_buffers", "_modules")
    return {
        f"{path}.{name}": value
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in skipped and not name.endswith("_hooks")
    }


@pytest.fixture
def guest() -> Iterator[Any]:
    model = copy.deepcopy(tiny.model(FAMILY))
    before = hook_count(model)
    yield model
    assert hook_count(model) == before


class StumbleError(Exception):
    pass


class Stumble(StoppingCriteria):
    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        raise StumbleError


def test_hooks_are_gone_after_success_and_after_an_error(guest: Any) -> None:
    inputs, method = tiny.inputs(FAMILY, KIND), sooner.Speculative(guest, num_draft_tokens=2)
    sooner.generate(guest, inputs, method, **GREEDY)
    assert hook_count(guest) == hook_count(tiny.model(FAMILY))
    with pytest.raises(StumbleError):
        sooner.generate(guest, inputs, method, **GREEDY,
                        stopping_criteria=StoppingCriteriaList([Stumble()]))  # fmt: skip
    assert hook_count(guest) == hook_count(tiny.model(FAMILY))
    broken = {**inputs, "pixel_values_videos": inputs["pixel_values_videos"][:5]}
    with pytest.raises(Exception):  # noqa: B017, PT011  (whatever the vision tower says)
        sooner.generate(guest, broken, method, **GREEDY)
    assert hook_count(guest) == hook_count(tiny.model(FAMILY))


def test_the_model_is_as_before_afterwards(guest: Any) -> None:
    """All but the offset that HF's own `generate` leaves behind in the same place."""
    inputs = tiny.inputs(FAMILY, KIND, 2)
    guest.generate(**inputs, **GREEDY)
    before, weights = attributes(guest), copy.deepcopy(guest.state_dict())
    training = guest.training
    sooner.generate(guest, inputs, sooner.Speculative(guest, num_draft_tokens=2), **GREEDY)
    after = attributes(guest)
    assert after.keys() == before.keys()
    changed = {name for name in before if after[name] is not before[name]}
    assert {name for name in changed if not name.endswith("rope_deltas")} == set()
    assert guest.training == training
    assert all(torch.equal(weights[name], value) for name, value in guest.state_dict().items())


def test_two_threads_decode_with_a_shared_model_at_once() -> None:
    jobs = [("text", 1), ("image", 2), ("mixed", 1), ("video", 3)]
    method = sooner.Speculative(tiny.noisy("llava_onevision"), num_draft_tokens=3)
    model = tiny.model("llava_onevision")

    def decode_job(kind: str, rows: int) -> list[list[int]]:
        inputs = tiny.inputs("llava_onevision", kind, rows)
        return sooner.generate(model, inputs, method, **GREEDY).sequences.tolist()

    expected = [decode_job(*job) for job in jobs]
    results: list[Any] = [None] * len(jobs)

    def work(place: int) -> None:
        results[place] = [decode_job(*jobs[place]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[output] * 3 for output in expected]


def test_every_public_name_is_there() -> None:
    for name in sooner.__all__:
        assert getattr(sooner, name) is not None
    entries = method_types().items()  # of other packages, too
    brought = {name for name, entry in entries if entry.load().__module__.startswith("sooner.")}
    assert len(brought) > 10
    assert brought <= set(sooner.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Speculativ'"):
        _ = sooner.Speculativ


def test_what_rows_are_expected_to_say_is_drafted_where_it_is_right() -> None:
    model, inputs = tiny.model("llama"), tiny.inputs("llama", rows=2)
    options: dict[str, Any] = {**GREEDY, "max_new_tokens": 24, "eos_token_id": None}
    plain = sooner.generate(model, inputs, sooner.Autoregressive(), **options).tokens
    lookup = sooner.PromptLookup(8, predictions=[[], plain[1]])
    result = sooner.generate(model, inputs, lookup, **options)
    alone = sooner.generate(model, inputs, sooner.PromptLookup(8), **options)
    cut = sooner.PromptLookup(8, predictions=[[], [*plain[1][:9], tiny.VOCAB, *plain[1][10:]]])
    assert sooner.generate(model, inputs, cut, **options).tokens == plain, "an id without a score"
    assert result.tokens == plain
    assert result.stats.num_accepted_draft_tokens > alone.stats.num_accepted_draft_tokens
    with pytest.raises(sooner.SoonerError, match="predictions are for 1 rows, the batch has 2"):
        sooner.generate(model, inputs, sooner.PromptLookup(predictions=[[3]]), **options)
