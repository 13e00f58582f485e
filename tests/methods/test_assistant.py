"""Gemma 4's assistants: the published layout, transformers' own drafts, runs, refusals."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import assistants
import sooner
import tiny
from assistants import config_for, texts_of, weights_for, written
from sooner import Assistant, AssistantModel
from sooner.engine.interface import Outcome
from sooner.engine.row_sampling import SamplingParams
from sooner.engine.tree import Tree
from sooner.methods.assistant.method import AssistantDrafter
from sooner.methods.assistant.model import FULL, AssistantConfig
from sooner.methods.trained import load_drafter, load_for, method_of
from sooner.models import adapt, odd_ids
from zoo.laws import ROWS
from zoo.sliding import SLIDING as SLIDING_TEXT
from zoo.species import filled, model_of
from zoo.tiny import tiny as tiny_type
from zoo.zoo import ZOO

NAMES = [name for name in ("gemma4", "gemma4_unified") if name in ZOO]
NEW, DRAFTED = 24, 4
GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0}
CLUSTERS = 16

pytestmark = pytest.mark.skipif(not NAMES, reason="the installed transformers has no Gemma 4")


def inputs_of(name: str, kind: str = "text", rows: int = ROWS) -> dict[str, Any]:
    return ZOO[name].inputs(model_of(ZOO[name]), kind, rows, 0)


@functools.cache
def fitted(name: str, kind: str = "text", clusters: int = 0) -> AssistantModel:
    return assistants.fitted(model_of(ZOO[name]), inputs_of(name, kind), NEW, clusters)


# --- transformers' own assistants


@pytest.fixture
def hf_assistant(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], Any]:
    """Makes transformers' own assistant of a config.json.

    5.23 can't build one: it asks which layer makes the keys, and of an assistant's layers none
    does.
    """

    def made(raw: dict[str, Any]) -> Any:
        place = "transformers.models.gemma4"
        configs = importlib.import_module(f"{place}.configuration_gemma4").Gemma4TextConfig
        modes_property = getattr(configs, "kv_sharing_modes", None)
        if modes_property is not None:

            def modes(self: Any) -> list[str | None]:
                if self.num_kv_shared_layers == self.num_hidden_layers:
                    return ["reuse"] * self.num_hidden_layers
                result: list[str | None] = modes_property.fget(self)
                return result

            monkeypatch.setattr(configs, "kv_sharing_modes", property(modes))
        from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM

        inner = {key: value for key, value in raw["text_config"].items() if value is not None}
        outer = {key: value for key, value in raw.items() if key not in ("architectures", "dtype")}
        config = Gemma4AssistantConfig(**{**outer, "text_config": inner})
        return Gemma4AssistantForCausalLM(config).eval()

    return made


def published(drafter: AssistantModel) -> dict[str, Tensor]:
    """Its tensors by their published names."""
    tensors = drafter.state_dict()
    tensors["embed_tokens.weight"] = tensors.pop("lm_head.weight")
    outer = ("pre_projection", "post_projection", "masked_embedding")
    return {
        name if name.startswith(outer) else f"model.{name}": tensor
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("clusters", [0, CLUSTERS])
def test_what_transformers_writes_is_read(
    hf_assistant: Callable[[dict[str, Any]], Any], clusters: int, tmp_path: Path
) -> None:
    model = model_of(ZOO["gemma4"])
    raw = config_for(model, clusters)
    assistant = hf_assistant(raw)
    assistant.load_state_dict(weights_for(raw), strict=False)
    assistant.save_pretrained(tmp_path)
    loaded = load_for("assistant", tmp_path)
    assert loaded.config == AssistantConfig.of_layout(raw, "here")
    expected = {name.removeprefix("model."): tensor for name, tensor in weights_for(raw).items()}
    expected["lm_head.weight"] = expected.pop("embed_tokens.weight")
    assert loaded.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.state_dict().items())


@pytest.mark.parametrize("clusters", [0, CLUSTERS])
def test_drafts_are_those_of_transformers(
    hf_assistant: Callable[[dict[str, Any]], Any], clusters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round by round, of every row of a ragged batch, with windows that prompts exceed."""
    from transformers.generation.candidate_generator import (
        SinglePositionMultiTokenCandidateGenerator,
    )

    parameters = inspect.signature(SinglePositionMultiTokenCandidateGenerator.__init__).parameters
    if "input_ids" in parameters:
        pytest.skip("the installed transformers has an older generator, which is asked otherwise")
    model, inputs = model_of(ZOO["gemma4"]), inputs_of("gemma4")
    drafter = fitted("gemma4", "text", clusters)
    raw = config_for(model, clusters)
    assistant = hf_assistant(raw)
    lacking, unknown = assistant.load_state_dict(published(drafter), strict=False)
    assert unknown == []
    assert set(lacking) <= {"lm_head.weight"}
    assistant.tie_weights()
    assistant = assistant.double()
    assistant.generation_config.num_assistant_tokens = DRAFTED
    rounds: list[tuple[dict[int, list[int]], list[list[int]]]] = []
    original = AssistantDrafter.draft

    def listen(self: AssistantDrafter, outcome: Outcome) -> Tree:
        tree = original(self, outcome)
        drafts = [
            tokens[:many] for tokens, many in zip(tree.tokens.tolist(), self.levels, strict=True)
        ]
        rounds.append((texts_of(outcome), drafts))
        return tree

    monkeypatch.setattr(AssistantDrafter, "draft", listen)
    method = Assistant(drafter, num_draft_tokens=DRAFTED)
    made = sooner.generate(model, inputs, method, max_new_tokens=NEW, **GREEDY)
    if not clusters:
        assert made.stats.num_accepted_draft_tokens > 10
    compared, pixels = 0, getattr(model, odd_ids.KNOWN)
    for texts, drafts in rounds:
        for (row, text), draft in zip(texts.items(), drafts, strict=True):
            real = inputs["input_ids"][row][inputs["attention_mask"][row].bool()]
            ids = torch.cat([real, torch.tensor(text)])[None]
            outputs = model(
                input_ids=ids[:, :-1], output_hidden_states=True, return_shared_kv_states=True,
                mm_token_type_ids=torch.zeros_like(ids[:, :-1]),
            )  # fmt: skip
            config = model.generation_config
            config.max_length = 512
            candidates, _ = SinglePositionMultiTokenCandidateGenerator(
                assistant, model.get_input_embeddings(), config
            ).get_candidates(ids, {}, outputs, is_first_iteration=False, n_last_matches=0)
            expected = candidates[0, ids.shape[1] :].tolist()
            assert len(expected) == DRAFTED
            # What stands for pixels is embedded as the target embeds it, which they do not ask.
            odd = [place for place, token in enumerate([text[-1], *draft]) if token in pixels]
            draft = draft[: odd[0]] if odd else draft
            assert draft == expected[: len(draft)]
            compared += len(draft)
    assert compared > 80


# --- runs


def test_layers_that_see_all_may_have_wider_heads_and_fewer_of_them(
    hf_assistant: Callable[[dict[str, Any]], Any], tmp_path: Path
) -> None:
    """As in Gemma 4 26B and 31B, whose full layers make values of their keys; from files that
    transformers wrote."""
    small: Any = ZOO["gemma4"].build
    text = {
        **SLIDING_TEXT, "attention_k_eq_v": True, "num_global_key_value_heads": 1,
        "global_head_dim": 16, "hidden_size_per_layer_input": 0,
    }  # fmt: skip
    build = tiny_type("gemma4", **{**small.args[1], "text_config": text})
    made = dataclasses.replace(ZOO["gemma4"], build=build)
    model = filled(made)
    inputs = made.inputs(model, "text", ROWS, 0)
    raw = config_for(model, attention_k_eq_v=True, num_global_key_value_heads=1)
    assert raw["text_config"]["global_head_dim"] == 16
    assistant = hf_assistant(raw)
    drafter = assistants.fitted(model, inputs, NEW)
    assistant.load_state_dict(published(drafter), strict=False)
    assistant.tie_weights()
    assistant.save_pretrained(tmp_path)
    expected = model.generate(**inputs, max_new_tokens=NEW, **GREEDY)
    method = load_drafter(tmp_path, num_draft_tokens=DRAFTED)
    assert method.drafter.config == drafter.config
    made_by = sooner.generate(model, inputs, method, max_new_tokens=NEW, **GREEDY)
    assert made_by.tokens == expected[:, inputs["input_ids"].shape[1] :].tolist()
    assert made_by.stats.num_accepted_draft_tokens > 0


def test_a_processor_may_forbid_all_that_clusters_hold() -> None:
    """Drafts then are what is left, and the text is the target's own."""
    model, inputs = model_of(ZOO["gemma4"]), inputs_of("gemma4")
    banned = [[token] for token in range(150)]
    options = {**GREEDY, "bad_words_ids": banned}
    expected = model.generate(**inputs, max_new_tokens=8, **options)
    method = Assistant(fitted("gemma4", "text", CLUSTERS), num_draft_tokens=DRAFTED)
    made = model.generate(**inputs, max_new_tokens=8, **options, custom_generate=method)
    assert torch.equal(made, expected)


# --- files and what is refused


def test_the_files_tell_what_it_is(tmp_path: Path) -> None:
    raw = config_for(model_of(ZOO["gemma4"]))
    folder = written(tmp_path, raw, weights_for(raw))
    assert method_of(folder) == "assistant"
    method = load_drafter(folder, num_draft_tokens=3)
    assert isinstance(method, Assistant)
    assert (method.largest_block(), method.slot_bytes()) == (4, 0)
    assert Assistant(folder).largest_block() == 9
    with pytest.raises(sooner.SoonerError, match="Gemma 4's assistant, which method 'assistant'"):
        sooner.DFlash(folder)
    with pytest.raises(sooner.SoonerError, match="Gemma 4's assistant is run by Assistant"):
        load_drafter(folder, nodes=3)


def test_a_head_of_its_own_is_read_and_must_be_there(tmp_path: Path) -> None:
    raw = config_for(model_of(ZOO["gemma4"]), CLUSTERS)
    weights = weights_for(raw)
    untied = {**raw, "tie_word_embeddings": False}
    with pytest.raises(sooner.SoonerError, match="lacks lm_head"):
        load_drafter(written(tmp_path / "untied", untied, weights))
    head = torch.full_like(weights["model.embed_tokens.weight"], 2.0)
    folder = written(tmp_path / "own", untied, {**weights, "lm_head.weight": head})
    assert torch.equal(load_for("assistant", folder).lm_head.weight, head)


@pytest.mark.parametrize(
    ("changes", "text", "message"),
    [
        ({"quantization_config": {"bits": 4}}, {}, "quantised weights"),
        ({}, {"layer_types": ["linear_attention"] * 3}, "linear_attention layers"),
        ({}, {"rope_parameters": {FULL: {"rope_type": "yarn"}}}, "'yarn' RoPE"),
        ({}, {"use_bidirectional_attention": "all"}, "use_bidirectional_attention 'all'"),
        ({}, {"hidden_activation": "snake"}, "hidden_activation 'snake'"),
        ({"text_config": None}, {}, "lacks text_config"),
        ({"backbone_hidden_size": None}, {}, "has no backbone_hidden_size"),
        ({"backbone_hidden_size": "big"}, {}, "backbone_hidden_size in .* is 'big'; it must be"),
        ({}, {"head_dim": 0}, "head_dim in .* is 0; it must be a whole number of 1 or more"),
        ({}, {"num_attention_heads": 0}, "num_attention_heads in .* is 0; it must be a whole"),
    ],
)
def test_options_that_are_not_run_are_refused_by_name(
    changes: dict[str, Any], text: dict[str, Any], message: str, tmp_path: Path
) -> None:
    config = config_for(model_of(ZOO["gemma4"]), **text)
    weights = weights_for(config_for(model_of(ZOO["gemma4"])))
    raw = {key: value for key, value in {**config, **changes}.items() if value is not None}
    with pytest.raises(sooner.SoonerError, match=message):
        load_drafter(written(tmp_path, raw, weights))


def test_a_target_that_it_was_not_trained_for_is_refused() -> None:
    model, inputs = model_of(ZOO["gemma4"]), inputs_of("gemma4")
    other = Assistant(assistants.of("llama"))
    with pytest.raises(sooner.SoonerError, match=r"hidden_size 48, but Gemma4.* has 32"):
        sooner.generate(model, inputs, other, max_new_tokens=4)
    drafter = fitted("gemma4")
    with pytest.raises(sooner.SoonerError, match=r"keys of a sliding_attention layer, but .* only"):
        Assistant(drafter).drafter.check(adapt(tiny.model("llama")))
    wide = config_for(model, global_head_dim=32)
    tall = AssistantModel(AssistantConfig.of_layout(wide, "here"))
    with pytest.raises(
        sooner.SoonerError, match=r"head_dim of full_attention layers 32, .* has 16"
    ):
        tall.check(adapt(model))


def test_guidance_and_pruned_prompts_are_refused() -> None:
    family = "qwen2_5_vl"
    model, inputs = tiny.model(family), tiny.inputs(family, "image", 1)
    method = Assistant(assistants.of(family), num_draft_tokens=DRAFTED)
    with pytest.raises(sooner.SoonerError, match=r"guidance 2\.0 can't be honoured"):
        method.session(model, inputs, SamplingParams(max_new_tokens=4), guidance=2.0)
    with (
        pytest.raises(sooner.SoonerError, match=r"a prefill context left .* out of layer"),
        sooner.FastV(ratio=0.5, layer=1)(model),
    ):
        sooner.generate(model, inputs, method, max_new_tokens=6, do_sample=False)
