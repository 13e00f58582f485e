"""Files of drafters in the layouts of SGLang and of speculators, which vLLM reads."""

from __future__ import annotations

import json
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

import sooner
import tiny
from methods.doors import generate
from methods.trees import paths_of
from published_heads import draw, run_head, write_eagle3
from sooner.methods.dflash.method import BlockDrafter
from sooner.methods.draft_module import DraftModule
from sooner.methods.eagle.method import EagleDrafter
from sooner.models import adapt
from sooner.tasks.train_draft.blocks import BlockBatch, denoise_blocks
from sooner.tasks.train_draft.settings import HeadTraining

HEADS: dict[str, Any] = {
    "eagle": lambda: tiny.head("llama"),
    "eagle3": lambda: tiny.eagle3_head("llama"),
    "dflash": lambda: tiny.block_drafter("llama"),
}
BOTH = ("eagle3", "dflash")
SHARED = {
    "speculators_model_type": (str,), "architectures": (list,), "speculators_config": (dict,),
    "transformer_layer_config": (dict,), "draft_vocab_size": (int,),
    "target_hidden_size": (int, NoneType),
}  # fmt: skip
SCHEMA: dict[str, dict[str, tuple[type, ...]]] = {
    "eagle3": {
        **SHARED, "norm_before_residual": (bool,), "norm_before_fc": (bool,), "fc_norm": (bool,),
        "norm_output": (bool,), "embed_requires_grad": (bool,),
        "eagle_aux_hidden_state_layer_ids": (list, NoneType),
    },
    "dflash": {
        **SHARED, "block_size": (int,), "aux_hidden_state_layer_ids": (list, NoneType),
        "mask_token_id": (int, NoneType), "sliding_window_non_causal": (bool,),
        "sample_from_anchor": (bool,),
    },
}  # fmt: skip
"""Keys of config.json and their types, as the classes of speculators 0.9.0 have them."""
ALGORITHM = {
    "algorithm": (str,), "proposal_methods": (list,), "default_proposal_method": (str,),
    "verifier": (dict,),
}  # fmt: skip
LAYER = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
    *("input_layernorm", "post_attention_layernorm"),
)
LAYERS = {
    "eagle3": [("layers.0.", (*LAYER, "hidden_norm"))],
    "dflash": [(f"layers.{n}.", (*LAYER, "self_attn.q_norm", "self_attn.k_norm")) for n in (0, 1)],
}
TENSORS = {
    "eagle3": {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"},
    "dflash": {"fc.weight", "norm.weight", "hidden_norm.weight"},
}
"""Tensors beside those of `LAYERS`; embeddings are the verifier's."""


def config_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return content


def read(folder: Path) -> DraftModule:
    method: Any = sooner.load_drafter(folder)
    head: DraftModule = getattr(method, method.trained)
    return head


@pytest.mark.parametrize("kind", BOTH)
def test_files_are_of_the_schema_of_speculators(kind: str, tmp_path: Path) -> None:
    head = HEADS[kind]()
    head.save_pretrained(tmp_path, "speculators")
    config = config_of(tmp_path)
    assert config.keys() - SCHEMA[kind].keys() == {"sooner"}
    for name, types in SCHEMA[kind].items():
        assert name not in config or type(config[name]) in types, name
    assert config["speculators_model_type"] == config["speculators_config"]["algorithm"] == kind
    algorithm = config["speculators_config"]
    assert {name: (type(value),) for name, value in algorithm.items()} == ALGORITHM
    (proposal,) = algorithm["proposal_methods"]
    assert proposal["proposal_type"] == algorithm["default_proposal_method"] == "greedy"
    assert proposal["speculative_tokens"] == 5  # speculators' default, and the block of six
    assert algorithm["verifier"].keys() == {"name_or_path", "architectures"}
    layer = config["transformer_layer_config"]
    parsed = type(AutoConfig.for_model(layer["model_type"]))(**layer)
    for name in ("hidden_size", "head_dim", "num_hidden_layers", "vocab_size", "rms_norm_eps"):
        assert getattr(parsed, name) == layer[name]
    assert parsed.rope_parameters == head.config.rope_parameters
    layers = {f"{at}{name}.weight" for at, names in LAYERS[kind] for name in names}
    assert set(load_file(tmp_path / "model.safetensors")) == TENSORS[kind] | layers


@pytest.mark.parametrize("kind", BOTH)
def test_speculators_reads_the_files(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("speculators")
    from speculators import SpeculatorModelConfig
    from speculators.model import SpeculatorModel

    head = HEADS[kind]()
    head.save_pretrained(tmp_path, "speculators")
    config = SpeculatorModelConfig.from_pretrained(str(tmp_path))
    assert SCHEMA[kind].keys() < type(config).model_fields.keys()
    assert config.speculators_config.proposal_methods[0].speculative_tokens == 5
    config.transformer_layer_config._attn_implementation = "eager"
    model = SpeculatorModel.registered_model_class_from_config(config)(config=config).eval()
    missing, unexpected = model.load_state_dict(load_file(tmp_path / "model.safetensors"), False)
    assert not unexpected
    assert set(missing) <= {
        *("embed_tokens.weight", "lm_head.weight"),
        *("verifier_norm.weight", "verifier_lm_head.weight"),
    }
    target = tiny.model("llama")
    model.embed_tokens.weight.data.copy_(target.get_input_embeddings().weight)
    ids, states = torch.arange(20)[None] * 4, draw(3, 1, 20, head.fc.in_features)
    document = torch.zeros(1, 20, dtype=torch.long)
    with torch.no_grad():
        if kind == "eagle3":
            (drafts,) = model(states, ids, document, ttt_steps=1)
            made = run_head(head, target.get_input_embeddings()(ids), states)
            assert drafts.tolist() == head.drafted_logits(made).argmax(-1).tolist()
            return
        model.lm_head.weight.data.copy_(target.lm_head.weight)
        is_learnt = (torch.arange(20) == 7)[None].float()
        _, logits, *_ = model._backbone_forward(
            states, ids, is_learnt, torch.zeros(1, 20, 48), document, max_anchors=1
        )
        block = torch.zeros(1, 1, head.config.block_size, dtype=torch.long)
        batch = BlockBatch(states, ids, torch.tensor([[7]]), block)
        torch.testing.assert_close(logits, denoise_blocks(head, adapt(target), batch)[0])


@pytest.mark.parametrize("kind", HEADS)
def test_heads_of_both_layouts_draft_the_same_tokens(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, drafts = HEADS[kind](), list[Any]()
    kind_of = BlockDrafter if kind == "dflash" else EagleDrafter
    draft = kind_of.draft

    def spy(self: Any, outcome: Any) -> Any:
        tree = draft(self, outcome)
        drafts.append([paths_of(tree, row) for row in range(len(tree.sizes))])
        return tree

    monkeypatch.setattr(kind_of, "draft", spy)
    options = {"num_draft_tokens": 4} if kind == "dflash" else {"nodes": 8, "depth": 3, "top_k": 3}
    method: Any = sooner.DFlash if kind == "dflash" else sooner.Eagle
    runs = []
    for layout in (None, "sglang", *(["speculators"] if kind in BOTH else [])):
        if layout is not None:
            head.save_pretrained(tmp_path / layout, layout)
        drafter = head if layout is None else tmp_path / layout
        made = generate("llama", method(drafter, **options), "text", 2)
        runs.append((made.tokens, drafts.copy()))
        drafts.clear()
    assert runs[0][1]
    assert all(run == runs[0] for run in runs[1:])


def test_a_layout_that_can_not_tell_what_is_computed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sooner.SoonerError, match="unknown layout 'vllm'"):
        tiny.head("llama").save_pretrained(tmp_path, "vllm")
    with pytest.raises(sooner.UnsupportedError, match="EAGLE-2: speculators has no layout"):
        tiny.head("llama").save_pretrained(tmp_path, "speculators")
    with pytest.raises(sooner.SoonerError, match="which format 'mtp' does not have"):
        HeadTraining(format="mtp", layout="speculators")
    options = {"layout": "speculators", "qk_norm": True, "norm_before_residual": True}
    head = read(write_eagle3(tmp_path / "norms", **options))
    with pytest.raises(sooner.UnsupportedError, match="what SGLang's layout has no place for"):
        head.save_pretrained(tmp_path / "sglang")
    head.save_pretrained(tmp_path / "again", "speculators")
    again = read(tmp_path / "again")
    assert again.config == head.config
    for name, value in head.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_a_published_head_of_eagle_2_is_read(tmp_path: Path) -> None:
    """As SafeAILab has them: plain Llama by name, a table of embeddings, and no norm before the
    attention of the only layer."""
    head = tiny.head("llama")
    head.save_pretrained(tmp_path)
    config, tensors = config_of(tmp_path), load_file(tmp_path / "model.safetensors")
    assert config["architectures"] == ["LlamaForCausalLMEagle"]
    assert "layers.0.input_layernorm.weight" not in tensors
    table = tiny.model("llama").get_input_embeddings().weight
    tensors = {f"model.{name}": value for name, value in tensors.items()}
    torch.save({**tensors, "embed_tokens.weight": table}, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    del config["sooner"]
    config["architectures"] = ["LlamaForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    method: Any = sooner.load_drafter(tmp_path)
    assert isinstance(method.head, sooner.EagleHead)
    for name, value in head.state_dict().items():
        assert torch.equal(method.head.state_dict()[name], value), name
    del tensors["model.fc.bias"]  # as vLLM's EAGLE has it
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    assert read(tmp_path).fc.bias is None
