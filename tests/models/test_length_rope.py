"""RoPE of every type, some of which depend on the length: ids are those of each row's own steps."""

from __future__ import annotations

import copy
import functools
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    InternVLConfig,
    InternVLForConditionalGeneration,
    MistralConfig,
    MistralForCausalLM,
    Qwen2_5_VLForConditionalGeneration,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import sooner
import tiny
from sooner.engine.memory import manager
from sooner.engine.rope import LengthRope
from sooner.errors import UnsupportedError
from sooner.models import FAMILIES, adapt

SWITCH, LONGEST = 24, 96
HALF = 6  # of a head
TYPES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 16.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": SWITCH},
    "longrope": {
        "short_factor": [1.0 + 0.1 * n for n in range(HALF)],
        "long_factor": [2.0 + n for n in range(HALF)],
        "original_max_position_embeddings": SWITCH,
    },
    "llama3": {
        "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": SWITCH,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}  # fmt: skip
DEPENDENT = ("dynamic", "longrope")
LENGTHS = {"before": 7, "reaches": 17, "behind": 31}
OPTIONS: dict[str, Any] = {
    "max_new_tokens": 14, "eos_token_id": None, "pad_token_id": 0, "do_sample": False,
}  # fmt: skip


def text_config(kind: str, switch: int = SWITCH) -> dict[str, Any]:
    rope = {"rope_type": kind, "rope_theta": 1e4, **TYPES[kind]}
    if "original_max_position_embeddings" in rope:
        rope["original_max_position_embeddings"] = switch
    positions = switch if kind == "dynamic" else LONGEST
    return {
        **tiny.TEXT, "num_hidden_layers": 2, "max_position_embeddings": positions,
        "rope_parameters": rope,
    }  # fmt: skip


def mistral(text: dict[str, Any]) -> Any:
    return MistralForCausalLM(MistralConfig(**text, sliding_window=None))


def gemma3(text: dict[str, Any]) -> Any:
    """Frequencies by kind of layer, of which one depends on the length."""
    ropes = {
        "full_attention": text.pop("rope_parameters"),
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e3},
    }
    kinds = ["sliding_attention", "full_attention"]
    config = Gemma3TextConfig(
        **text, head_dim=12, sliding_window=16, query_pre_attn_scalar=1, layer_types=kinds,
        rope_parameters=ropes,
    )  # fmt: skip
    return Gemma3ForCausalLM(config)


def internvl(text: dict[str, Any]) -> Any:
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "image_size": [28, 28],
        "num_attention_heads": 2, "patch_size": [7, 7],
    }  # fmt: skip
    text = {**text, "model_type": "qwen2"}
    return InternVLForConditionalGeneration(
        InternVLConfig(text_config=text, vision_config=vision, image_token_id=tiny.IMAGE)
    )


def qwen2_5_vl(text: dict[str, Any]) -> Any:
    """Positions of three axes."""
    config = tiny.BUILDERS["qwen2_5_vl"](text).config
    config.text_config.rope_parameters = {**text["rope_parameters"], "mrope_section": [1, 2, 3]}
    return Qwen2_5_VLForConditionalGeneration(config)


BUILDERS = {
    **{name: tiny.BUILDERS[name] for name in ("llama", "qwen2", "llava_onevision")},
    "qwen2_5_vl": qwen2_5_vl, "mistral": mistral, "gemma3": gemma3, "internvl": internvl,
}  # fmt: skip


def filled(built: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    for weights in built.parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.15, generator=generator)
    built.generation_config.eos_token_id = None
    return built.eval().double()


@functools.cache
def model(family: str, kind: str, switch: int = SWITCH) -> Any:
    torch.manual_seed(0)
    return filled(BUILDERS[family](text_config(kind, switch)))


def prompts() -> list[list[int]]:
    """Returns a prompt of each of `LENGTHS`; their words repeat, so that a lookup finds them."""
    generator = torch.Generator().manual_seed(3)
    words = torch.randint(0, 80, (5,), generator=generator).tolist()
    return [(words * 8)[:length] for length in LENGTHS.values()]


def batch(rows: list[list[int]]) -> dict[str, Any]:
    width = max(map(len, rows))
    return {
        "input_ids": torch.tensor([[tiny.PAD] * (width - len(row)) + row for row in rows]),
        "attention_mask": torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows]),
    }


@functools.cache
def expected(family: str, kind: str) -> list[list[int]]:
    """What each prompt's own `generate` says, by a model that has seen no other."""
    return [
        copy.deepcopy(model(family, kind))
        .generate(**batch([row]), **OPTIONS)[0, len(row) :]
        .tolist()
        for row in prompts()
    ]


def method(name: str, target: Any) -> sooner.Method:
    if name == "tree":
        return sooner.SDTree(target)
    return sooner.Speculative(target, num_draft_tokens=5)


@pytest.mark.parametrize("way", ["itself", "tree"])
@pytest.mark.parametrize("kind", DEPENDENT)
@pytest.mark.parametrize("family", BUILDERS)
def test_rows_on_both_sides_of_the_switch_in_a_batch(family: str, kind: str, way: str) -> None:
    target = model(family, kind)
    assert (target.config.model_type in FAMILIES) == (family in tiny.FAMILIES)
    made = sooner.generate(target, batch(prompts()), method(way, target), **OPTIONS)
    assert made.tokens == expected(family, kind)
    assert made.stats.mode == "exact"
    if way == "itself":
        assert made.stats.mean_acceptance_length > 4


def picture(family: str, words: list[int]) -> dict[str, Any]:
    """A prompt of words, and a picture behind them."""
    if family == "llava_onevision":
        inputs = tiny.inputs(family, "image")
        ids, pixels = inputs["input_ids"], inputs["pixel_values"].double()
    else:
        generator = torch.Generator().manual_seed(1)
        ids = torch.tensor([[*[tiny.IMAGE] * 4, 5, 6]])
        inputs, pixels = {}, torch.randn(1, 3, 28, 28, generator=generator).double()
    ids = torch.cat([torch.tensor([words]), ids], 1)
    mask = torch.ones_like(ids)
    return {**inputs, "input_ids": ids, "attention_mask": mask, "pixel_values": pixels}


@pytest.mark.parametrize("kind", DEPENDENT)
@pytest.mark.parametrize(("family", "size"), [("llava_onevision", 60), ("internvl", 6)])
def test_pictures(family: str, size: int, kind: str) -> None:
    target = model(family, kind, size + 5)
    for words in ([1], [1, 2, 3], list(range(8))):
        inputs = picture(family, words)
        assert inputs["input_ids"].shape[1] == size + len(words)
        ids = copy.deepcopy(target).generate(**inputs, **OPTIONS)
        for way in ("itself", "tree"):
            made = sooner.generate(target, inputs, method(way, target), **OPTIONS)
            assert torch.equal(made.sequences, ids)


@pytest.mark.parametrize("kind", ["default", *ROPE_INIT_FUNCTIONS])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_every_type_of_transformers(family: str, kind: str) -> None:
    target = model(family, kind)
    for row, ids in zip(prompts(), expected(family, kind), strict=True):
        made = sooner.generate(target, batch([row]), method("tree", target), **OPTIONS)
        assert made.tokens == [ids]


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("kind", DEPENDENT)
def test_requests_that_join_share_prefixes_and_are_interrupted(
    kind: str, paged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "PAGE", 4)
    target = model("llama", kind)
    engine = sooner.Engine(target, method("itself", target), pages=40, paged=paged)
    for _ in range(2):
        requests = [engine.add_request(batch([row]), **OPTIONS) for row in prompts()]
        engine.run()
        assert [entry.tokens for entry in requests] == [[ids] for ids in expected("llama", kind)]
    short, _, long = (request.cached_tokens for request in requests)
    assert short > 0
    assert long == 0  # its keys are those of its own length alone
    for place in (3, 9, 12):
        for row, ids in zip(prompts(), expected("llama", kind), strict=True):
            request = engine.add_request(batch([row]), generated=tuple(ids[:place]), **OPTIONS)
            engine.run()
            assert request.tokens == [ids[place:]]


def test_a_model_that_generated_a_longer_text_before() -> None:
    """transformers would go on with the frequencies of that text; a new row has its own."""
    target = copy.deepcopy(model("llama", "dynamic"))
    target.generate(**batch([prompts()[2] * 2]), **OPTIONS)
    made = sooner.generate(target, batch(prompts()), method("itself", target), **OPTIONS)
    assert made.tokens == expected("llama", "dynamic")


def test_another_thread_decodes_by_itself_meanwhile() -> None:
    target = model("llama", "longrope")
    rope = LengthRope.of(adapt(target))
    assert rope is not None
    row = batch(prompts()[2:])
    with rope.by_token(), ThreadPoolExecutor(1) as threads:
        output = threads.submit(target.generate, **row, **OPTIONS).result()
    assert output[0, LENGTHS["behind"] :].tolist() == expected("llama", "longrope")[2]


class MatmulRotary(LlamaRotaryEmbedding):
    """Angles by a product of matrices, as of transformers before 5.20."""

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inverse = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        angles = (inverse @ position_ids[:, None, :].float()).transpose(1, 2)
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)


@pytest.mark.parametrize("kind", DEPENDENT)
def test_angles_as_older_versions_compute_them(kind: str) -> None:
    target = copy.deepcopy(model("llama", kind))
    target.model.rotary_emb = MatmulRotary(target.config)
    made = sooner.generate(target, batch(prompts()), method("itself", target), **OPTIONS)
    scaling = model("llama", kind).model.rotary_emb.attention_scaling
    if scaling == 1:
        assert made.tokens == expected("llama", kind)
    for row, ids in zip(prompts(), made.tokens, strict=True):
        clone = copy.deepcopy(target)
        clone.model.rotary_emb = MatmulRotary(target.config)
        assert clone.generate(**batch([row]), **OPTIONS)[0, len(row) :].tolist() == ids


# What is refused before it happens


def undecorated() -> Any:
    """A rotary module of a checkpoint's own code."""
    target = copy.deepcopy(model("llama", "dynamic"))

    class BareRotary(LlamaRotaryEmbedding):
        forward = inspect.unwrap(LlamaRotaryEmbedding.forward)

    target.model.rotary_emb = BareRotary(target.config)
    return target


def other_formula() -> Any:
    """A type called dynamic that is another."""
    target = copy.deepcopy(model("llama", "dynamic"))
    target.model.rotary_emb.rope_type = "dynamic_squared"
    return target


def squared(config: Any, device: Any = None, seq_len: Any = None, **kwargs: Any) -> Any:
    frequencies, scale = ROPE_INIT_FUNCTIONS["dynamic"](config, device, seq_len=seq_len)
    return frequencies**2, scale


@pytest.mark.parametrize("build", [undecorated, other_formula])
def test_frequencies_of_an_unknown_kind(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ROPE_INIT_FUNCTIONS, "dynamic_squared", squared)
    target, (before, reaches, beyond) = build(), prompts()
    fits = {**OPTIONS, "max_new_tokens": 1 + SWITCH - len(before)}
    ids = copy.deepcopy(target).generate(**batch([before]), **fits)[0, len(before) :].tolist()
    made = sooner.generate(target, batch([before]), method("tree", target), **fits)
    assert made.tokens == [ids]
    for row in (reaches, beyond):
        with pytest.raises(UnsupportedError, match="dynamic RoPE of a kind that is not known"):
            sooner.generate(target, batch([row]), **OPTIONS)
