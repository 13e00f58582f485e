"""The generic adapter: exact where it takes a model, and one line where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlavaForConditionalGeneration,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import sooner
import tiny
from same_drafts import SameDrafts
from sooner.engine.interface import cache_of
from sooner.errors import SoonerError, UnsupportedError
from sooner.methods import Method
from sooner.models import FAMILIES, adapt, unproved
from sooner.models.generic import GenericText
from sooner.models.generic_check import self_check
from zoo.species import model_of
from zoo.zoo import ZOO

TEXT: dict[str, Any] = {**tiny.TEXT, "num_hidden_layers": 2}
OPTIONS: dict[str, Any] = {
    "max_new_tokens": 15,
    "eos_token_id": None,
    "pad_token_id": 0,
    "do_sample": False,
}


def filled(built: Any) -> Any:
    """Random weights, large enough that attention really selects."""
    generator = torch.Generator().manual_seed(0)
    for weights in built.parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.15, generator=generator)
    return built.eval()


def gpt2() -> Any:
    """Learned positions, and a decoder that is no `model.model`."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=96,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=128,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def mistral(window: int | None = None) -> Any:
    return MistralForCausalLM(MistralConfig(**TEXT, sliding_window=window))


def gemma() -> Any:
    """Scales its embeddings."""
    return GemmaForCausalLM(GemmaConfig(**TEXT, head_dim=12, tie_word_embeddings=False))


def cohere() -> Any:
    return CohereForCausalLM(CohereConfig(**TEXT, logit_scale=0.5))


def louder() -> Any:
    """Scales its logits, and nothing in its config says so."""
    model = mistral()
    model.register_forward_hook(lambda module, args, output: _doubled(output))
    return model


def _doubled(output: Any) -> Any:
    output.logits = 2 * output.logits
    return output


def blind_to_its_window() -> Any:
    """Its config has a window that a layer does not keep to."""
    kinds = ["sliding_attention", "full_attention"]
    config = Qwen2Config(**TEXT, use_sliding_window=True, sliding_window=8, layer_types=kinds)
    config.model_type = "unheard_of"
    model = Qwen2ForCausalLM(config)
    model.model.layers[0].self_attn.sliding_window = None
    return model


def mamba() -> Any:
    return MambaForCausalLM(MambaConfig(vocab_size=96, hidden_size=32, num_hidden_layers=1))


WORDS: dict[str, Callable[[], Any]] = {
    "gpt2": gpt2, "mistral": mistral, "window": lambda: mistral(8), "gemma": gemma,
    "cohere": cohere,
}  # fmt: skip
METHODS: dict[str, Callable[[Any, list[list[int]]], Method]] = {
    "itself": lambda model, output: sooner.Speculative(model, num_draft_tokens=4),
    "tree": lambda model, output: sooner.SDTree(model),
    "hsd": lambda model, output: SameDrafts(
        [[output[0][8:], output[1][:7] + output[0][3:5]]], nodes=10
    ),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", WORDS)
def test_unknown_text_models_are_exact(name: str, method: str) -> None:
    """Models that see are in the zoo."""
    model, inputs = filled(WORDS[name]()), tiny.inputs("llama", "text", 2)
    expected = model.generate(**inputs, **OPTIONS)
    output_ids = expected[:, inputs["input_ids"].shape[1] :].tolist()
    assert len({*output_ids[0], *output_ids[1]}) > 4
    made = sooner.generate(model, inputs, METHODS[method](model, output_ids), **OPTIONS)
    assert made.sequences.tolist() == expected.tolist()
    assert type(adapt(model)) is GenericText
    if method == "itself":
        assert made.stats.mean_acceptance_length == 4.0 or made.stats.nfe == 4


# Refusals


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a window that is not kept": (blind_to_its_window, "see a window of None"),
    "state": (mamba, "no layer with attention"),
    "scaled logits": (louder, "otherwise than its own generate()"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused_in_a_single_line(why: str) -> None:
    build, message = REFUSED[why]
    with pytest.raises(SoonerError) as caught:
        adapt(filled(build()))
    text = str(caught.value)
    assert message in text
    assert "is not supported" in text
    assert all(family in text for family in FAMILIES)
    assert "\n" not in text


def test_a_prompt_that_sees_ahead_is_prefilled_as_a_whole() -> None:
    species = ZOO["paligemma"]
    adapter = adapt(model_of(species))
    prompt = adapter.embed_prompt(species.inputs(adapter.model, "image", 2, 0))
    assert not adapter.may_split(prompt)
    with pytest.raises(UnsupportedError, match="leave prefill_chunk_size unset"):
        adapter.cut_extras(prompt, 0, 4)
    twice = adapter.repeat_prompt(prompt, 2).extras["prompt_mask"][""]
    assert twice.shape == (2 * prompt.rows, 1, prompt.width, prompt.width)


class Deaf(MistralForCausalLM):
    """Attends backwards whatever it is told."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model.register_forward_pre_hook(self._forget, with_kwargs=True)

    @staticmethod
    def _forget(_module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        mask = kwargs.get("attention_mask")
        kwargs = {name: value for name, value in kwargs.items() if name != "attention_block"}
        return args, {**kwargs, "attention_mask": None if mask is None or mask.ndim == 4 else mask}


class Placed(MistralForCausalLM):
    """Counts its positions by the cache, whatever it is told."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model.register_forward_pre_hook(self._count, with_kwargs=True)

    @staticmethod
    def _count(_module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        cache, block = cache_of(kwargs), kwargs["inputs_embeds"].shape[1]
        start = cache.get_seq_length() if cache is not None else 0
        return args, {**kwargs, "position_ids": torch.arange(start, start + block)[None]}


@pytest.mark.parametrize("kind", [Deaf, Placed])
def test_what_a_config_does_not_tell_the_self_check_finds(kind: type) -> None:
    """Masks or positions that are ignored show only when a tree is compared."""
    model = filled(kind(MistralConfig(**TEXT, sliding_window=None)))
    assert unproved(model) is not None
    with pytest.raises(SoonerError, match=r"fails its self-check|otherwise than its own"):
        adapt(model)


class Axes(LlavaForConditionalGeneration):
    """Gives its pictures places of its own, which a config with no `mrope` does not tell."""

    def forward(
        self,
        input_ids: Any = None,
        pixel_values: Any = None,
        position_ids: Any = None,
        **kwargs: Any,
    ) -> Any:
        if pixel_values is not None:
            position_ids = position_ids // 2
        return super().forward(
            input_ids=input_ids, pixel_values=pixel_values, position_ids=position_ids, **kwargs
        )


def test_custom_positions_are_refused_at_the_first_picture() -> None:
    species = ZOO["llava"]
    model = filled(Axes(model_of(species).config)).double()
    adapt(model)  # words don't show it
    with pytest.raises(UnsupportedError, match="positions of its own"):
        sooner.generate(model, species.inputs(model, "image", 2, 0), **OPTIONS)


# The self-check


def test_half_precision_passes_and_a_wrong_mask_does_not() -> None:
    model = filled(mistral()).bfloat16()
    self_check(unproved(model))
    deaf = filled(Deaf(MistralConfig(**TEXT, sliding_window=None))).bfloat16()
    with pytest.raises(UnsupportedError):
        self_check(unproved(deaf))
