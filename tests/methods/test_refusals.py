"""What can't be honoured is refused in one line that names the thing, the value and the way out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import DynamicCache, GenerationConfig

import sooner
import tiny
from methods.doors import both_doors, refused
from sooner.engine import hf_border
from sooner.methods import base
from sooner.methods.context import PADDING
from sooner.models import adapt

GREEDY = {"max_new_tokens": 5, "eos_token_id": None, "do_sample": False}


# Options of a generation config


@pytest.mark.parametrize("kind", ["offloaded_static", "quantized", "sliding_window"])
def test_caches_of_another_make_are_refused(kind: str) -> None:
    config = GenerationConfig()
    config.cache_implementation = kind
    with refused(sooner.UnsupportedError, f"cache_implementation='{kind}'", "leave it unset"):
        hf_border.refuse_config(config)


# Inputs


def test_a_cache_with_tokens_is_refused() -> None:
    model, inputs = tiny.model("llama"), tiny.inputs("llama")
    cache = model(**inputs, past_key_values=DynamicCache(config=model.config)).past_key_values
    count = cache.get_seq_length()
    with refused(sooner.UnsupportedError, f"a cache with {count} tokens"):
        model.generate(
            torch.cat([inputs["input_ids"], torch.tensor([[1]])], 1), **GREEDY,
            past_key_values=cache, custom_generate=sooner.Autoregressive(),
        )  # fmt: skip


@both_doors
@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.ones(1, 0), "the prompt of row 0 is empty"),
        (torch.tensor([[1, 1, 1], [0, 0, 0]]), "the prompt of row 1 is empty"),
        (torch.ones(0, 3), "no prompt"),
        (None, "the prompt of row 0 is empty"),
    ],
    ids=["no token", "padding alone", "no row", "no mask"],
)
def test_an_empty_prompt_is_refused_by_its_row(
    door: str, mask: torch.Tensor | None, words: str
) -> None:
    model = tiny.model("llama")
    shape = (1, 0) if mask is None else mask.shape
    inputs = {"input_ids": torch.ones(shape, dtype=torch.long)}
    if mask is not None:
        inputs["attention_mask"] = mask.long()
    with refused(sooner.SoonerError, words):
        if door == "session":
            sooner.generate(model, inputs, **GREEDY)
        else:
            model.generate(**inputs, **GREEDY, custom_generate=sooner.PromptLookup())
    engine = sooner.Engine(model)
    request = engine.add_request(inputs, **GREEDY)
    engine.run()
    assert words in str(request.error)


def test_embeddings_instead_of_ids_are_refused() -> None:
    model, inputs = tiny.model("llama"), tiny.inputs("llama")
    embeds = model.get_input_embeddings()(inputs["input_ids"])
    with refused(sooner.UnsupportedError, "inputs_embeds", "pass input_ids"):
        model.generate(inputs_embeds=embeds, **GREEDY, custom_generate=sooner.Autoregressive())


def test_custom_position_ids_are_refused_and_the_usual_ids_are_not() -> None:
    model, inputs = tiny.model("llama"), tiny.inputs("llama", rows=2)
    usual = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    expected = model.generate(**inputs, **GREEDY)
    ours = sooner.generate(model, {**inputs, "position_ids": usual}, **GREEDY)
    assert ours.sequences.tolist() == expected.tolist()
    with refused(sooner.UnsupportedError, "position_ids"):
        sooner.generate(model, {**inputs, "position_ids": usual + 3}, **GREEDY)


@pytest.mark.parametrize("family", ["llama", "qwen2_5_vl"])
def test_a_prompt_beyond_the_models_positions_is_refused_with_both_numbers(family: str) -> None:
    ids = torch.ones(1, 512, dtype=torch.long)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with refused(sooner.SoonerError, "prompt of 512 tokens", "512 positions", "shorter prompt"):
        sooner.generate(tiny.model(family), inputs, **GREEDY)


@pytest.mark.parametrize("family", ["llava_onevision", "qwen2_5_vl", "qwen3_vl"])
def test_placeholders_without_enough_pixels_are_refused(family: str) -> None:
    inputs = tiny.inputs(family, "image", 2)
    keys = {"pixel_values", "image_grid_thw", "image_sizes", "batch_num_images"} & inputs.keys()
    for key in keys:
        inputs[key] = inputs[key][: len(inputs[key]) // 2]
    with pytest.raises((sooner.SoonerError, ValueError)) as caught:
        base.adapt(tiny.model(family)).embed_prompt(inputs)
    assert isinstance(caught.value, sooner.SoonerError) or family != "llava_onevision"


def test_padding_without_a_mask_is_seen_as_generate_sees_it() -> None:
    model, ids = tiny.model("llama"), tiny.inputs("llama", "text")["input_ids"].clone()
    ids[:, :2] = 0
    options = {**GREEDY, "pad_token_id": 0, "eos_token_id": 1}
    ours = sooner.generate(model, {"input_ids": ids}, **options).sequences
    assert torch.equal(ours, model.generate(input_ids=ids, **options))


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
    model, inputs = tiny.model("qwen2_5_vl"), tiny.inputs("qwen2_5_vl", "text")
    with pytest.raises(ValueError, match=message) as theirs:
        model.generate(**inputs, **options)
    with pytest.raises(ValueError, match=message) as ours:
        sooner.generate(model, inputs, **options)
    assert str(ours.value) == str(theirs.value)


# Models


def test_an_attention_without_tree_masks_is_refused() -> None:
    model = copy.deepcopy(tiny.model("llama"))
    model.config._attn_implementation_internal = "flash_attention_2"
    with refused(sooner.UnsupportedError, "flash_attention_2", "attn_implementation='sdpa'"):
        adapt(model)


# Drafts


def test_a_vocabulary_of_another_size_is_another_tokenizer() -> None:
    draft = tiny.model("llama", seed=1, layers=1, vocab=tiny.VOCAB + PADDING + 1)
    method = sooner.Speculative(draft, num_draft_tokens=2)
    with refused(
        sooner.SoonerError, "different tokenizers", "LlamaForCausalLM", "Qwen2ForCausalLM",
        str(tiny.VOCAB), str(tiny.VOCAB + PADDING + 1),
    ):  # fmt: skip
        sooner.generate(tiny.model("qwen2"), tiny.inputs("qwen2"), method, **GREEDY)


def test_a_draft_that_ends_texts_otherwise_has_another_tokenizer() -> None:
    draft = copy.deepcopy(tiny.model("llama"))
    draft.generation_config.eos_token_id = [12, 13]
    method = sooner.Speculative(draft, num_draft_tokens=2)
    with refused(sooner.SoonerError, "different tokenizers", "[12, 13]", f"[{tiny.EOS}]"):
        sooner.generate(tiny.model("qwen2"), tiny.inputs("qwen2"), method, **GREEDY)
    draft.generation_config.eos_token_id = [12, tiny.EOS]
    sooner.generate(tiny.model("qwen2"), tiny.inputs("qwen2"), method, **GREEDY)


@pytest.mark.parametrize("num_draft_tokens", [0, -1, "foo", "", 2.5, True, None])
def test_a_window_that_is_no_count_is_refused(num_draft_tokens: Any) -> None:
    with refused(sooner.SoonerError, "Speculative", "num_draft_tokens", repr(num_draft_tokens)):
        sooner.Speculative(None, num_draft_tokens=num_draft_tokens)


def test_a_smaller_vocabulary_never_meets_a_token_that_it_does_not_have() -> None:
    """The target may say tokens from its padding; a draft with less padding has no row for them."""
    target, draft = tiny.model("llama"), tiny.repadded("llama", tiny.VOCAB - 1)
    inputs = tiny.inputs("llama")
    expected = target.generate(**inputs, **GREEDY)
    assert tiny.VOCAB - 1 in expected[0, inputs["input_ids"].shape[1] :]
    method = sooner.Speculative(draft, num_draft_tokens=3)
    result = sooner.generate(target, inputs, method, **GREEDY)
    assert result.sequences.tolist() == expected.tolist()


@pytest.mark.parametrize("rows", [1, 3])
def test_draft_inputs_of_another_batch_are_refused(rows: int) -> None:
    method = sooner.Speculative(
        tiny.model("llama", seed=2),
        num_draft_tokens=2,
        draft_inputs=tiny.inputs("llama", rows=rows),
    )
    with refused(sooner.SoonerError, "draft_inputs"):
        sooner.generate(tiny.model("llama"), tiny.inputs("llama", rows=2), method, **GREEDY)


# Logits


def with_nan(family: str) -> Any:
    """A model that returns NaN for one token from the second step on."""
    model = copy.deepcopy(tiny.model(family))
    calls = []

    def poison(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return output if len(calls) == 1 else output.index_fill(-1, torch.tensor([5]), torch.nan)

    model.get_output_embeddings().register_forward_hook(poison)
    return model


@pytest.mark.parametrize("sampling", [False, True])
@pytest.mark.parametrize("name", ["plain", "prompt-lookup", "speculative"])
def test_nan_logits_end_decoding_with_a_specific_error(name: str, sampling: bool) -> None:
    method = {
        "plain": sooner.Autoregressive(),
        "prompt-lookup": sooner.PromptLookup(),
        "speculative": sooner.Speculative(tiny.noisy("llama"), num_draft_tokens=3),
    }[name]
    with refused(sooner.SoonerError, "NaN logits", "float16"):
        sooner.generate(
            with_nan("llama"), tiny.inputs("llama", rows=2), method,
            max_new_tokens=6, do_sample=sampling, eos_token_id=None,
        )  # fmt: skip


def test_nan_of_a_draft_alone_does_not_change_greedy_output() -> None:
    """A broken draft costs speed, never the output."""
    expected = tiny.model("llama").generate(**tiny.inputs("llama"), **GREEDY)
    method = sooner.Speculative(with_nan("llama"), num_draft_tokens=2)
    result = sooner.generate(tiny.model("llama"), tiny.inputs("llama"), method, **GREEDY)
    assert result.sequences.tolist() == expected.tolist()


# Memory


def test_running_out_of_memory_names_the_estimate_and_what_to_lower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_args: Any, **_options: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("sooner.engine.cache.SlotLayer.lazy_initialization", full)
    with refused(sooner.SoonerError, "out of memory", "GiB", "max_new_tokens", "lower"):
        sooner.generate(tiny.model("llama"), tiny.inputs("llama"), **GREEDY)
