"""Decoders that take blocks: `generate`'s ids from static slots, and nothing left behind."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
import transformers
from torch.library import opcheck
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import sooner
import tiny
from attention_cases import case
from recorders import StandIn
from sooner import MMInference
from sooner.engine.attention.context import attending_to_blocks, block_attention

TEXT = {
    "vocab_size": 96, "hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 3, "head_dim": 16, "pad_token_id": 0,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
SLIDING = {
    "sliding_window": 6,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
BUILDERS: dict[str, Any] = {
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**TEXT)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**TEXT | SLIDING, attn_logit_softcapping=5.0)
    ),
    "gemma3": lambda: transformers.Gemma3ForCausalLM(
        transformers.Gemma3TextConfig(**TEXT | SLIDING)
    ),
    "gpt_oss": lambda: transformers.GptOssForCausalLM(
        transformers.GptOssConfig(
            **TEXT | SLIDING, num_local_experts=2, num_experts_per_tok=1
        )
    ),
    "llama4": lambda: transformers.Llama4ForCausalLM(
        transformers.Llama4TextConfig(
            **TEXT, attention_chunk_size=8, intermediate_size_mlp=64, num_local_experts=2,
            attn_temperature_tuning=False, moe_layers=[], no_rope_layers=[1, 1, 0],
        )
    ),
}  # fmt: skip


def build(family: str) -> Any:
    torch.manual_seed(0)
    model = BUILDERS[family]().eval()
    for weights in model.parameters():
        weights.data.add_(torch.randn_like(weights) * 0.1)
    return model


@pytest.mark.parametrize("chunk", [None, 5])
@pytest.mark.parametrize("family", BUILDERS)
def test_trees_over_static_slots_give_generate_s_ids(family: str, chunk: int | None) -> None:
    model, recorder, inputs = build(family), StandIn(), tiny.inputs("llama", "text", 3)
    options = {"max_new_tokens": 20, "eos_token_id": None, "do_sample": False}
    expected = model.generate(**inputs, **options)
    width = inputs["input_ids"].shape[1]
    drafts = [[[*row[:4], 95, *row[5:9]], row] for row in expected[:, width:].tolist()]
    made = sooner.generate(
        model, inputs, sooner.HSD(drafts, nodes=9), graphs=recorder, prefill_chunk_size=chunk,
        **options,
    )  # fmt: skip
    assert torch.equal(made.sequences, expected)
    assert recorder.replayed > 0
    assert made.stats.num_accepted_draft_tokens > 0


@torch.no_grad()
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_everything_else_runs_what_the_model_was_loaded_with(attention: str) -> None:
    model = build("qwen2")
    model.set_attn_implementation(attention)
    ids = torch.tensor([[1, 2, 3, 4], [0, 0, 7, 8]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    plain = model(input_ids=ids, attention_mask=mask).logits
    before = set(ALL_ATTENTION_FUNCTIONS.keys())
    with attending_to_blocks(model.config):
        assert model.config._attn_implementation == f"sooner_block_{attention}"
        assert torch.equal(model(input_ids=ids, attention_mask=mask).logits, plain)
        seen = []
        other = threading.Thread(
            target=lambda: seen.append(model(input_ids=ids, attention_mask=mask).logits)
        )
        other.start()
        other.join()
        assert torch.equal(seen[0], plain)
    assert model.config._attn_implementation == attention
    assert set(ALL_ATTENTION_FUNCTIONS.keys()) == before


def test_the_config_is_put_back_after_errors_and_when_the_last_run_ends() -> None:
    config = transformers.Qwen2Config(**TEXT)
    config._attn_implementation = "sdpa"
    with pytest.raises(RuntimeError, match="stop"), attending_to_blocks(config):
        raise RuntimeError("stop")
    assert config._attn_implementation == "sdpa"
    first, second = attending_to_blocks(config), attending_to_blocks(config)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert config._attn_implementation == "sooner_block_sdpa"
    second.__exit__(None, None, None)
    assert config._attn_implementation == "sdpa"


def test_vision_towers_keep_their_attention() -> None:
    model = copy.deepcopy(tiny.model("qwen2_5_vl"))
    with attending_to_blocks(model.config.get_text_config(decoder=True)):
        assert model.config.vision_config._attn_implementation == "sdpa"
        layer = model.get_decoder().layers[0].self_attn
        assert layer.config._attn_implementation == "sooner_block_sdpa"


def test_a_sparse_prefill_context_keeps_its_prompts_and_blocks_are_ours() -> None:
    model, recorder = copy.deepcopy(tiny.model("qwen2")), StandIn()
    inputs, options = tiny.inputs("qwen2"), {"max_new_tokens": 9, "eos_token_id": None}
    expected = sooner.generate(model, inputs, graphs="off", **options)
    with MMInference.auto(dense_below=1)(model) as report:
        name = model.config._attn_implementation
        made = sooner.generate(model, inputs, graphs=recorder, **options)
        assert model.config._attn_implementation == name
        assert report.prefills
    assert made.tokens == expected.tokens  # so short a prompt is seen whole
    assert recorder.replayed > 0
    assert model.config._attn_implementation == "sdpa"


@torch.no_grad()
def test_a_sparse_context_may_end_before_the_run_does() -> None:
    model = copy.deepcopy(tiny.model("qwen2"))
    sparse = MMInference.auto()(model)
    sparse.__enter__()
    with attending_to_blocks(model.config):
        sparse.__exit__(None, None, None)
    assert model.config._attn_implementation == "sdpa"


def test_the_operator_is_registered_as_torch_wants_it() -> None:
    example = case([20, 30], 5, tree=True)
    arguments = (*example.arguments[:3], *example.block, 0.25, 8, None, None, None)
    opcheck(
        torch.ops.sooner.block_attention.default, arguments,
        test_utils=("test_schema", "test_faketensor"),
    )  # fmt: skip
    made = block_attention(*example.arguments)
    assert made.transpose(1, 2).is_contiguous()
