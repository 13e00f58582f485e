"""DFlash drafters as people publish them: layouts, names of tensors, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import sooner
import tiny
from sooner import DFlashModel
from sooner.methods.dflash.model import FUSED, DFlashConfig
from sooner.methods.trained import load_drafter, load_for
from sooner.models.checkpoint import WEIGHTS

SIZES: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 12, "rms_norm_eps": 1e-6, "vocab_size": tiny.VOCAB,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}  # fmt: skip
ZLAB: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", **SIZES, "block_size": 6,
    "dflash_config": {"mask_token_id": 95, "target_layer_ids": [0, 1]},
}  # fmt: skip

read_config = DFlashConfig.of_layout


def written(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS)
    return folder


@pytest.fixture
def model() -> DFlashModel:
    torch.manual_seed(3)
    return DFlashModel(read_config(ZLAB, "here")).eval()


def same(first: DFlashModel, other: DFlashModel) -> bool:
    tensors = other.state_dict()
    return all(torch.equal(value, tensors[name]) for name, value in first.state_dict().items())


def test_what_is_written_is_z_labs_layout_and_is_read_again(
    tmp_path: Path, model: DFlashModel
) -> None:
    model.save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    assert raw["architectures"] == ["DFlashDraftModel"]
    assert raw["dflash_config"] == {"mask_token_id": 95, "target_layer_ids": [0, 1]}
    layer = "layers.1."
    names = {
        "fc.weight", "hidden_norm.weight", "norm.weight", f"{layer}input_layernorm.weight",
        f"{layer}post_attention_layernorm.weight", f"{layer}self_attn.q_norm.weight",
        f"{layer}self_attn.k_norm.weight", f"{layer}mlp.gate_proj.weight",
        f"{layer}mlp.up_proj.weight", f"{layer}mlp.down_proj.weight",
        *(f"{layer}self_attn.{letter}_proj.weight" for letter in "qkvo"),
    }  # fmt: skip
    written_names = set(load_file(tmp_path / WEIGHTS))
    assert names == {name for name in written_names if not name.startswith("layers.0.")}
    again = load_for("dflash", tmp_path)
    assert same(model, again)
    assert again.config == model.config


def test_layers_are_numbered_as_each_layout_means_them() -> None:
    assert read_config(ZLAB, "").layers == (1, 2), "i is hidden_states[i + 1]"
    inner = {**SIZES, "model_type": "qwen3"}
    speculators = {
        "speculators_model_type": "dflash", "transformer_layer_config": inner, "block_size": 6,
        "aux_hidden_state_layer_ids": [1, 2], "mask_token_id": 95, "draft_vocab_size": 96,
    }  # fmt: skip
    assert read_config(speculators, "").layers == (1, 2), "k is hidden_states[k]"
    flat = {
        **SIZES, "speculative_config": {
            "method": "dflash", "speculative_tokens": 5, "target_layer_ids": [1, 2],
            "target_layer_start_idx": 1, "mask_token_id": 95,
        },
    }  # fmt: skip
    assert read_config(flat, "").layers == (1, 2)
    assert read_config(flat, "").block_size == 6, "five tokens and their anchor"
    anchored = read_config({**speculators, "sample_from_anchor": True}, "")
    assert (anchored.drafts, read_config(speculators, "").drafts) == (6, 5)


def test_sliding_layers_are_causal_by_default() -> None:
    kinds = ["sliding_attention", "full_attention"]
    sliding = {**ZLAB, "layer_types": kinds, "sliding_window": 9}
    assert read_config(sliding, "").causal == (True, False)
    assert read_config(sliding, "").windows == (9, None)
    assert read_config({**sliding, "is_causal": False}, "").causal == (False, False)
    assistant = {
        **SIZES, "model_type": "muse_glimmer_assistant", "layer_types": kinds, "sliding_window": 9,
        "mask_token_id": 95, "target_layer_ids": [0, 1], "block_size": 6,
    }  # fmt: skip
    assert read_config(assistant, "").causal == (False, False)


def test_other_names_of_the_same_tensors_are_read(tmp_path: Path, model: DFlashModel) -> None:
    weights = model.state_dict()
    assistant = {
        name.replace("fc.", "encoder.fc.").replace("hidden_norm", "encoder.output_norm_enc"): tensor
        for name, tensor in weights.items()
    }
    assert same(model, load_for("dflash", written(tmp_path / "encoder", ZLAB, assistant)))
    prefixed = {f"model.{name}": tensor for name, tensor in weights.items()}
    assert same(model, load_for("dflash", written(tmp_path / "model", ZLAB, prefixed)))
    fused = {name: tensor for name, tensor in weights.items() if "_proj" not in name}
    for layer in range(2):
        at = f"layers.{layer}."
        for whole, parts in FUSED.items():
            fused[f"{at}{whole}.weight"] = torch.cat(
                [weights[f"{at}{tensor}.weight"] for tensor in parts]
            )
        for alone in ("self_attn.o_proj", "mlp.down_proj"):
            fused[f"{at}{alone}.weight"] = weights[f"{at}{alone}.weight"]
    assert same(model, load_for("dflash", written(tmp_path / "fused", ZLAB, fused)))


def test_layers_that_are_not_named_are_refused() -> None:
    with pytest.raises(sooner.SoonerError, match="target_layer_ids"):
        read_config({**ZLAB, "dflash_config": {"mask_token_id": 95}}, "there")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 0}, "hidden_size in 'there' is 0; it must be a whole number of 1 or more"),
        ({"head_dim": 7}, "head_dim 7; the first is a multiple of the second, the third even"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers in 'there' is 'two'"),
        ({"hidden_act": "snake"}, "hidden_act 'snake', which transformers lacks"),
        ({"layer_types": ["full_attention"]}, "layer_types full_attention of 2 layers"),
    ],
)
def test_sizes_that_can_not_be_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(sooner.SoonerError, match=message):
        read_config({**ZLAB, **changes}, "there")


def test_m_rope_of_a_drafter_is_refused() -> None:
    rope = {"rope_type": "default", "mrope_section": [2, 2, 2]}
    with pytest.raises(sooner.UnsupportedError, match="M-RoPE"):
        read_config({**ZLAB, "rope_parameters": rope}, "there")


def test_a_reduced_vocabulary_is_mapped_to_the_targets_ids(
    tmp_path: Path, model: DFlashModel
) -> None:
    """speculators' files with a head, an embedding and offsets of their own."""
    target, token_ids = tiny.model("llama"), torch.arange(0, 96, 3)
    raw = {
        "speculators_model_type": "dflash", "transformer_layer_config": SIZES, "block_size": 6,
        "aux_hidden_state_layer_ids": [1, 2], "mask_token_id": 95,
        "draft_vocab_size": len(token_ids),
    }  # fmt: skip
    tensors = {
        **model.state_dict(), "d2t": token_ids - torch.arange(len(token_ids)),
        "t2d": torch.isin(torch.arange(96), token_ids),
        "lm_head.weight": target.lm_head.weight[token_ids],
        "embed_tokens.weight": target.get_input_embeddings().weight,
    }  # fmt: skip
    folder = written(tmp_path / "reduced", raw, tensors)
    loaded = load_for("dflash", folder)
    states, adapter = torch.randn(1, 2, 48), sooner.models.adapt(target)
    with torch.no_grad():
        whole, reduced = model.logits(states, adapter), loaded.logits(states, adapter)
        torch.testing.assert_close(reduced[..., token_ids], whole[..., token_ids])
    assert int(reduced.isneginf().sum()) == 2 * (96 - len(token_ids))
    inputs = tiny.inputs("llama", "text", 2)
    plain = target.generate(**inputs, max_new_tokens=12, do_sample=False, eos_token_id=None)
    for method in (sooner.DFlash(loaded), sooner.DDTree(loaded, nodes=60)):
        made = sooner.generate(
            target, inputs, method, max_new_tokens=12, do_sample=False, eos_token_id=None
        )
        assert torch.equal(made.sequences, plain)
    del tensors["d2t"]
    with pytest.raises(sooner.SoonerError, match=r"drafts 32 of 96 tokens, but has no .d2t."):
        load_for("dflash", written(tmp_path / "lacking", raw, tensors))


def test_a_folder_tells_which_method_runs_it(tmp_path: Path, model: DFlashModel) -> None:
    model.save_pretrained(tmp_path)
    made = load_drafter(tmp_path, num_draft_tokens=3)
    assert isinstance(made, sooner.DFlash)
    assert same(made.drafter, model)
    assert same(sooner.DDTree(tmp_path, nodes=8).drafter, model)
    with pytest.raises(sooner.SoonerError, match=r"is DFlash, which method 'dflash' runs"):
        sooner.Eagle(tmp_path)
