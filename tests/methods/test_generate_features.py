"""What users of `generate` know works through both doors as it does there."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
import time
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
from sooner.methods import base

FAMILY, KIND = "qwen3_vl", "video"
GREEDY = {"max_new_tokens": 14, "eos_token_id": None, "do_sample": False}


def methods() -> dict[str, sooner.Method]:
    return {
        "plain": sooner.Autoregressive(),
        "prompt-lookup": sooner.PromptLookup(),
        "speculative": sooner.Speculative(tiny.noisy(FAMILY), num_draft_tokens=4),
    }


@pytest.fixture(params=["plain", "prompt-lookup", "speculative"])
def method(request: pytest.FixtureRequest) -> sooner.Method:
    return methods()[request.param]


def decode(door: str, method: sooner.Method, inputs: dict, **options: Any) -> torch.Tensor:
    model = tiny.model(FAMILY)
    if door == "session":
        return sooner.generate(model, inputs, method, **options).sequences
    return model.generate(**inputs, **options, custom_generate=method)


both_doors = pytest.mark.parametrize("door", ["session", "custom_generate"])


# Streaming


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
    theirs, ours = Recorder(), Recorder()
    tiny.model(FAMILY).generate(**inputs, **GREEDY, streamer=theirs)
    decode(door, method, inputs, **GREEDY, streamer=ours)
    assert ours.calls == theirs.calls
    assert ours.calls[0] == inputs["input_ids"].tolist()
    assert ours.calls[-1] == "end"


@both_doors
def test_a_streamer_gets_nothing_behind_an_end_inside_a_draft(door: str) -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    end = free[0, inputs["input_ids"].shape[1] + 5].item()
    options = {**GREEDY, "eos_token_id": end}
    theirs, ours = Recorder(), Recorder()
    tiny.model(FAMILY).generate(**inputs, **options, streamer=theirs)
    itself = sooner.Speculative(tiny.model(FAMILY), num_draft_tokens=8)
    decode(door, itself, inputs, **options, streamer=ours)
    assert ours.calls == theirs.calls


@both_doors
def test_a_streamer_for_several_rows_is_refused(door: str) -> None:
    with pytest.raises(sooner.UnsupportedError, match="2 rows"):
        decode(door, sooner.Autoregressive(), tiny.inputs(FAMILY, KIND, 2), **GREEDY,
               streamer=Recorder())  # fmt: skip


def test_a_streamer_of_an_outer_generate_is_not_taken_for_ones_own() -> None:
    """A streamer is looked for in the caller's frame: only that of this very call counts."""
    inner = []

    class Nosy(Recorder):
        def put(self, value: torch.Tensor) -> None:
            super().put(value)
            if not inner:
                inner.append(1)
                decode("custom_generate", sooner.PromptLookup(), tiny.inputs(FAMILY), **GREEDY)

    theirs, ours, inputs = Recorder(), Nosy(), tiny.inputs(FAMILY, KIND)
    tiny.model(FAMILY).generate(**inputs, **GREEDY, streamer=theirs)
    decode("custom_generate", sooner.Autoregressive(), inputs, **GREEDY, streamer=ours)
    assert ours.calls == theirs.calls


@both_doors
def test_on_tokens_tells_every_token_of_every_row_once_and_in_order(
    door: str, method: sooner.Method
) -> None:
    inputs, told = tiny.inputs(FAMILY, KIND, 3), [[], [], []]
    drafted_counts = []

    def tell(row: int, tokens: list[int], drafted: int) -> None:
        told[row] += tokens
        drafted_counts.append((drafted, len(tokens)))

    free = decode(door, method, inputs, **GREEDY, on_tokens=tell)
    assert told == free[:, inputs["input_ids"].shape[1] :].tolist()
    assert all(drafted in (count, count - 1) for drafted, count in drafted_counts)


# Stopping


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


def test_criteria_of_the_caller_are_not_changed() -> None:
    criteria = StoppingCriteriaList([])
    decode("session", sooner.Autoregressive(), tiny.inputs(FAMILY), **GREEDY,
           stopping_criteria=criteria, stop_strings="ab", tokenizer=characters())  # fmt: skip
    assert len(criteria) == 0


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


def test_stop_strings_end_the_text_where_generate_does(method: sooner.Method) -> None:
    inputs, tokenizer = tiny.inputs(FAMILY, KIND), characters()
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    stop = tokenizer.decode(free[0, -8:-6])
    assert len(stop) == 2
    options = {**GREEDY, "stop_strings": stop, "tokenizer": tokenizer}
    expected = tiny.model(FAMILY).generate(**inputs, **options)
    assert expected.shape[1] < inputs["input_ids"].shape[1] + GREEDY["max_new_tokens"]
    assert decode("session", method, inputs, **options).tolist() == expected.tolist()


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


def test_tokens_are_the_sequences_without_prompt_and_padding() -> None:
    inputs = tiny.inputs(FAMILY, KIND, 3)
    width = inputs["input_ids"].shape[1]
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    end = free[1, width + 4].item()
    options = {**GREEDY, "eos_token_id": end}
    result = sooner.generate(tiny.model(FAMILY), inputs, methods()["speculative"], **options)
    assert len({len(row) for row in result.tokens}) > 1
    for row, said in enumerate(result.tokens):
        assert result.sequences[row, width:].tolist()[: len(said)] == said
        assert set(result.sequences[row, width + len(said) :].tolist()) <= {tiny.PAD}


@both_doors
@pytest.mark.parametrize("pad", [None, 3])
def test_ended_rows_are_padded_as_generate_pads_them(door: str, pad: int | None) -> None:
    inputs = tiny.inputs(FAMILY, KIND, 3)
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    end = free[0, inputs["input_ids"].shape[1] + 3].item()
    config = GenerationConfig(max_new_tokens=14, eos_token_id=[end, 1], pad_token_id=pad)
    expected = tiny.model(FAMILY).generate(**inputs, generation_config=config)
    ours = decode(door, methods()["speculative"], inputs, generation_config=config)
    assert ours.tolist() == expected.tolist()


@both_doors
def test_a_generation_config_is_honoured_and_left_alone(door: str) -> None:
    config = GenerationConfig(
        max_new_tokens=9, eos_token_id=[1, 2], pad_token_id=4, repetition_penalty=1.3
    )
    before, inputs = config.to_dict(), tiny.inputs(FAMILY, KIND, 2)
    expected = tiny.model(FAMILY).generate(**inputs, generation_config=config)
    ours = decode(door, methods()["speculative"], inputs, generation_config=config)
    assert ours.tolist() == expected.tolist()
    assert config.to_dict() == before


@both_doors
def test_max_length_counts_the_prompt(door: str, method: sooner.Method) -> None:
    inputs = tiny.inputs(FAMILY, KIND, 2)
    limit = inputs["input_ids"].shape[1] + 5
    sequences = decode(door, method, inputs, max_length=limit, eos_token_id=None)
    assert sequences.shape[1] == limit


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("llama", "text"),
        ("qwen2_5_vl", "images"),
        ("qwen2_5_vl", "uneven"),
        ("qwen3_vl", "mixed"),
        ("qwen3_vl", "video"),
        ("llava_onevision", "image"),
        ("llava_onevision", "images"),
        ("llava_onevision", "video"),
        ("llava_onevision", "uneven"),
    ],
)
@pytest.mark.parametrize("name", ["plain", "speculative"])
def test_several_sequences_of_a_prompt_see_its_pixels(family: str, kind: str, name: str) -> None:
    """Only the best token may be drawn, so every copy must be the greedy sequence of its prompt."""
    model, inputs = tiny.model(family), tiny.inputs(family, kind, 2)
    method = sooner.Autoregressive() if name == "plain" else sooner.Speculative(
        tiny.noisy(family), num_draft_tokens=3
    )  # fmt: skip
    options = {"max_new_tokens": 6, "eos_token_id": None}
    greedy = model.generate(**inputs, **options, do_sample=False)
    drawn = sooner.generate(
        model, inputs, method, **options, do_sample=True, top_k=1, num_return_sequences=3
    )
    assert drawn.sequences.tolist() == greedy.repeat_interleave(3, 0).tolist()
    assert len(drawn.tokens) == 6


def test_several_sequences_with_the_drafts_own_inputs() -> None:
    inputs = tiny.inputs("qwen2_5_vl", "image", 2)
    method = sooner.Speculative(
        tiny.model("llava_onevision"), num_draft_tokens=2,
        draft_inputs=tiny.inputs("llava_onevision", "image", 2),
    )  # fmt: skip
    options = {"max_new_tokens": 5, "do_sample": True, "top_k": 1, "num_return_sequences": 2}
    drawn = sooner.generate(tiny.model("qwen2_5_vl"), inputs, method, **options, eos_token_id=None)
    assert drawn.sequences.shape[0] == 4


def test_several_sequences_by_the_models_own_config() -> None:
    model = copy.deepcopy(tiny.model("llama"))
    model.generation_config.update(num_return_sequences=2, do_sample=True)
    result = sooner.generate(model, tiny.inputs("llama"), max_new_tokens=3)
    assert len(result.tokens) == 2


def test_token_types_may_be_left_to_generate() -> None:
    """Qwen's processors return them; a caller that drops them gets what `generate` would give."""
    inputs = tiny.inputs("qwen2_5_vl", "text", 2)
    assert "mm_token_type_ids" not in inputs
    inputs["mm_token_type_ids"] = torch.zeros_like(inputs["input_ids"])
    expected = tiny.model("qwen2_5_vl").generate(**inputs, **GREEDY)
    ours = sooner.generate(tiny.model("qwen2_5_vl"), inputs, sooner.PromptLookup(), **GREEDY)
    assert ours.sequences.tolist() == expected.tolist()


def test_a_text_prompt_behind_a_picture_is_not_mispositioned() -> None:
    """Qwen models remember the last prompt's offset; the next prompt must not inherit it."""
    model, text = tiny.model("qwen2_5_vl"), tiny.inputs("qwen2_5_vl", "text", 2)
    before = sooner.generate(model, text, sooner.PromptLookup(), **GREEDY).sequences
    sooner.generate(model, tiny.inputs("qwen2_5_vl", "images", 1), **GREEDY)
    after = sooner.generate(model, text, sooner.PromptLookup(), **GREEDY).sequences
    assert torch.equal(before, after)


def test_a_prompt_without_an_attention_mask_is_taken_whole() -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    del inputs["attention_mask"]
    expected = tiny.model(FAMILY).generate(**inputs, **GREEDY)
    assert decode("session", methods()["speculative"], inputs, **GREEDY).tolist() == (
        expected.tolist()
    )


# The model is a guest


def hooks(model: torch.nn.Module) -> int:
    return sum(
        len(module._forward_pre_hooks) + len(module._forward_hooks) for module in model.modules()
    )


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
    before = hooks(model)
    yield model
    assert hooks(model) == before


class StumbleError(Exception):
    pass


class Stumble(StoppingCriteria):
    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        raise StumbleError


def test_hooks_are_gone_after_success_and_after_an_error(guest: Any) -> None:
    inputs, method = tiny.inputs(FAMILY, KIND), sooner.Speculative(guest, num_draft_tokens=2)
    sooner.generate(guest, inputs, method, **GREEDY)
    assert hooks(guest) == hooks(tiny.model(FAMILY))
    with pytest.raises(StumbleError):
        sooner.generate(guest, inputs, method, **GREEDY,
                        stopping_criteria=StoppingCriteriaList([Stumble()]))  # fmt: skip
    assert hooks(guest) == hooks(tiny.model(FAMILY))
    broken = {**inputs, "pixel_values_videos": inputs["pixel_values_videos"][:5]}
    with pytest.raises(Exception):  # noqa: B017, PT011  (whatever the vision tower says)
        sooner.generate(guest, broken, method, **GREEDY)
    assert hooks(guest) == hooks(tiny.model(FAMILY))


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


def test_generate_works_as_before_afterwards(guest: Any) -> None:
    inputs = tiny.inputs(FAMILY, KIND, 2)
    expected = guest.generate(**inputs, **GREEDY)
    sooner.generate(guest, tiny.inputs(FAMILY, "images", 3), methods()["speculative"], **GREEDY)
    assert guest.generate(**inputs, **GREEDY).tolist() == expected.tolist()


def test_two_threads_decode_with_one_model_at_once() -> None:
    jobs = [("text", 1), ("image", 2), ("mixed", 1), ("video", 3)]
    method = sooner.Speculative(tiny.noisy("llava_onevision"), num_draft_tokens=3)
    model = tiny.model("llava_onevision")

    def decode_one(kind: str, rows: int) -> list[list[int]]:
        inputs = tiny.inputs("llava_onevision", kind, rows)
        return sooner.generate(model, inputs, method, **GREEDY).sequences.tolist()

    expected = [decode_one(*job) for job in jobs]
    found: list[Any] = [None] * len(jobs)

    def work(place: int) -> None:
        found[place] = [decode_one(*jobs[place]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[one] * 3 for one in expected]


def test_importing_the_package_imports_no_torch() -> None:
    code = "import sooner, sys; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    for name in sooner.__all__:
        assert getattr(sooner, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Speculativ'"):
        _ = sooner.Speculativ


# Statistics of real runs


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


def test_draft_tokens_behind_an_end_are_not_counted_as_accepted() -> None:
    inputs = tiny.inputs(FAMILY, KIND)
    free = decode("session", sooner.Autoregressive(), inputs, **GREEDY)
    said = free[0, inputs["input_ids"].shape[1] :].tolist()
    place = next(index for index in range(4, 14) if said[index] not in said[:index])
    itself = sooner.Speculative(tiny.model(FAMILY), num_draft_tokens=12)
    stats = sooner.generate(
        tiny.model(FAMILY), inputs, itself, max_new_tokens=20, eos_token_id=said[place]
    ).stats
    assert stats.acceptance_histogram == {place: 1}
    assert stats.decode_tokens == place


def test_a_text_draft_reads_the_words_of_the_prompt_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draft, seen = tiny.model("llama", seed=3), []
    adapter = type(base.adapt(draft))
    embed = adapter.embed_prompt

    def spy(self: Any, inputs: Any) -> Any:
        prompt = embed(self, inputs)
        seen.append(prompt.lengths)
        return prompt

    monkeypatch.setattr(adapter, "embed_prompt", spy)
    inputs = tiny.inputs(FAMILY, "mixed", 3)
    sooner.generate(
        tiny.model(FAMILY), inputs, sooner.Speculative(draft, num_draft_tokens=2), **GREEDY
    )
    pixels = torch.isin(inputs["input_ids"], torch.tensor([tiny.IMAGE, tiny.VIDEO]))
    words = inputs["attention_mask"].bool() & ~pixels
    assert seen == [words.sum(1).tolist()]


def test_the_phases_sum_to_the_time_that_passed() -> None:
    start = time.perf_counter()
    stats = sooner.generate(
        tiny.model(FAMILY), tiny.inputs(FAMILY, KIND, 2), methods()["speculative"], **GREEDY
    ).stats
    assert 0.5 * (time.perf_counter() - start) < stats.total_seconds < time.perf_counter() - start


def test_the_prefill_of_the_draft_is_not_taken_out_of_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draft = tiny.noisy(FAMILY)
    adapter = type(base.adapt(draft))
    embed = adapter.embed_prompt

    def slowly(self: Any, inputs: Any) -> Any:
        if self.model is draft:
            time.sleep(1.0)
        return embed(self, inputs)

    monkeypatch.setattr(adapter, "embed_prompt", slowly)
    method = sooner.Speculative(draft, num_draft_tokens=3)
    stats = sooner.generate(tiny.model(FAMILY), tiny.inputs(FAMILY), method, **GREEDY).stats
    assert stats.seconds["draft"] > 0
    assert 1.0 <= stats.seconds["draft_prefill"] < 1.9
    assert stats.decode_seconds > 0
