"""EAGLE heads, of our own and as EAGLE-3 is published: what they compute, draft, and refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import method_matrix as matrix
import sooner
import tiny
from methods.doors import generate
from methods.trees import literal_tree, paths_of, record_trees
from published_heads import VOCAB, PublishedEagle3, draw, run_head, write_eagle3
from recorders import StandIn
from sooner import Eagle, EagleHead
from sooner.methods.trained import load_for

# --- the head, with its cache and without


def literal_states(head: EagleHead, embeds: Tensor, states: Tensor, tail: list[Tensor]) -> Tensor:
    """The estimate behind a path, every entry computed anew.

    Args:
        embeds, states: of the committed entries, `[entries, hidden]`.
        tail: embeddings of the path's tokens.
    """
    estimate = run_head(head, embeds[None], states[None])[0, -1]
    for embed in tail:
        embeds, states = torch.cat([embeds, embed[None]]), torch.cat([states, estimate[None]])
        estimate = run_head(head, embeds[None], states[None])[0, -1]
    return estimate


def test_the_trees_of_a_run_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tree, against states of HF's own forward over all committed tokens."""
    model, head = tiny.model("llama"), tiny.head("llama")
    inputs = tiny.inputs("llama", "text", 2)
    seen = record_trees(monkeypatch, inputs)
    options = {"top_k": 4, "depth": 3, "nodes": 9}
    generate("llama", Eagle(head, **options), "text", 2, new=9)
    embed, checked = model.get_input_embeddings(), 0
    with torch.no_grad():
        for texts, tree, levels in seen:
            for row, ids in enumerate(texts):
                if levels[row] < options["depth"]:
                    continue  # near the limit trees are lower
                states = model.model(ids[None]).last_hidden_state[0, :-1]

                def after(path: Any, ids: Tensor = ids, states: Tensor = states) -> Tensor:
                    tail = [embed(torch.tensor(token)) for token in path]
                    estimate = literal_states(head, embed(ids[1:]), states, tail)
                    return model.lm_head(estimate).log_softmax(-1)

                assert set(paths_of(tree, row)) == literal_tree(after, **options)
                checked += 1
    assert checked > 6


# --- options, targets, files


def test_a_head_of_another_target_is_refused() -> None:
    other = tiny.model("llama", seed=5)
    inputs = tiny.inputs("llama", "text", 1)
    with pytest.raises(sooner.SoonerError, match=r"another target \(.* are off by"):
        sooner.generate(other, inputs, Eagle(tiny.head("llama")), max_new_tokens=4)
    with pytest.raises(sooner.SoonerError, match=r"model_type llama, not qwen2"):
        sooner.generate(tiny.model("qwen2"), inputs, Eagle(tiny.head("llama")), max_new_tokens=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": "most"}, "nodes is 'most'; it must be 'auto'"),
        ({"depth": 0}, "depth is 0"),
        ({"top_k": 1.5}, "top_k is 1.5"),
        ({"legal": []}, "legal is"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(sooner.SoonerError, match=message):
        Eagle(tiny.head("llama"), **options)


def test_only_legal_tokens_are_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = record_trees(monkeypatch, tiny.inputs("llama", "text", 2))
    expected = matrix.reference("llama", "text", 2, 15)
    made = generate("llama", Eagle(tiny.head("llama"), legal=range(20, 60)), "text", 2)
    assert made.sequences.tolist() == expected.tolist()
    drafted = {token for _, tree, _ in seen for token in tree.tokens[tree.valid()].tolist()}
    assert drafted
    assert drafted <= set(range(20, 60))


LAYOUTS: dict[str, dict[str, Any]] = {
    "specforge": {},
    "whole vocabulary": {"drafted": None},
    "speculators": {"layout": "speculators", "layers": (1, 2, 0), "embeddings": True},
    "qwen3 layer": {"layout": "speculators", "qk_norm": True, "norm_before_residual": True},
    "biases, norm before fc": {"layout": "speculators", "bias": True, "norm_before_fc": True},
    "another width": {"hidden": 32, "read": 48, "embeddings": True},
    "m-rope": {"rope_scaling": {"rope_type": "mrope", "mrope_section": [1, 2, 3]}},
}


def read(folder: Path) -> Any:
    return load_for("eagle", folder)


def positions_of(reference: PublishedEagle3, count: int) -> Tensor:
    if "mrope_section" not in (reference.config.get("rope_scaling") or {}):
        return torch.arange(count)
    return torch.stack([torch.arange(count), torch.arange(count) // 2, torch.arange(count) % 3])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_are_those_of_the_published_layout(layout: str, tmp_path: Path) -> None:
    """Behind the target's states, and behind one of the head's own."""
    head = read(write_eagle3(tmp_path, **LAYOUTS[layout]))
    reference = PublishedEagle3(tmp_path)
    hidden = head.config.hidden_size
    embeds, features = draw(7, 9, hidden) * 5, draw(8, 9, head.fc.in_features) * 9
    positions = positions_of(reference, 9)
    states = reference.start(features)
    after, expected = reference.run(embeds, states, positions)
    where = positions[None] if positions.ndim == 1 else positions[:, None]
    with torch.no_grad():
        torch.testing.assert_close(head.read(features[None])[0], states)
        made = run_head(head, embeds[None], features[None], where)
        torch.testing.assert_close(made[0], after, atol=1e-4, rtol=1e-4)
        logits = head.drafted_logits(made)[0]
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
        assert head.token_ids.tolist() == [
            reference.target_id(token) for token in range(logits.shape[-1])
        ]


@pytest.mark.parametrize(
    ("family", "layout"), [("llama", "another width"), ("qwen2_5_vl", "m-rope")]
)
def test_greedy_ids_of_ragged_rows_are_those_of_generate(
    family: str, layout: str, tmp_path: Path
) -> None:
    method = sooner.load_drafter(
        write_eagle3(tmp_path, **LAYOUTS[layout]), top_k=24, nodes=48, depth=4
    )
    made = generate(family, method, "uneven", 3)
    assert made.sequences.tolist() == matrix.reference(family, "uneven", 3, 15).tolist()
    assert made.stats.num_accepted_draft_tokens > 0


@pytest.mark.parametrize("shift", [0, 1])
def test_the_trees_of_a_run_are_those_of_the_reference(
    shift: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against HF's own `hidden_states`: which layers are read, and of which tokens.

    Speculators' number k is `hidden_states[k]`, SpecForge's i is `hidden_states[i + 1]`.
    """
    layout = "specforge" if shift else "speculators"
    write_eagle3(tmp_path, layout, layers=(0, 1, 0))
    reference, model = PublishedEagle3(tmp_path), tiny.model("llama")
    inputs = tiny.inputs("llama", "text", 2)
    seen = record_trees(monkeypatch, inputs)
    options = {"top_k": 3, "depth": 3, "nodes": 8}
    generate("llama", sooner.load_drafter(tmp_path, **options), "text", 2, new=12)
    embed, checked = model.get_input_embeddings(), 0
    with torch.no_grad():
        for texts, tree, levels in seen:
            for row, ids in enumerate(texts):
                if levels[row] < options["depth"]:
                    continue  # near the limit trees are lower
                hidden_states = model(ids[None], output_hidden_states=True).hidden_states
                states = torch.cat([hidden_states[k + shift][0, :-1] for k in (0, 1, 0)], -1)

                def after_path(path: Any, ids: Tensor = ids, states: Tensor = states) -> Tensor:
                    embeds, inputs = embed(ids[1:]), reference.start(states)
                    after, logits = reference.run(embeds, inputs, torch.arange(len(inputs)))
                    for token in path:
                        embeds = torch.cat([embeds, embed(torch.tensor([token]))])
                        inputs = torch.cat([inputs, after[-1:]])
                        after, logits = reference.run(embeds, inputs, torch.arange(len(inputs)))
                    drafted = [reference.target_id(token) for token in range(logits.shape[-1])]
                    every = torch.full((tiny.VOCAB,), -torch.inf)
                    return every.index_copy(0, torch.tensor(drafted), logits[-1].log_softmax(-1))

                assert set(paths_of(tree, row)) == literal_tree(after_path, **options)
                checked += 1
    assert checked > 6


def test_the_default_layers_are_low_middle_and_high(tmp_path: Path) -> None:
    head = read(write_eagle3(tmp_path, layers=None))

    class Target:
        layers = 32

    assert head.layer_ids_for(Target()) == (2, 16, 29)
    Target.layers = 3
    with pytest.raises(sooner.SoonerError, match="3 layers"):
        head.layer_ids_for(Target())


def test_steps_are_recorded_as_graphs_and_never_compiled(tmp_path: Path) -> None:
    """Hooks between layers are called while a step is recorded; no compiler can trace them."""
    method = sooner.load_drafter(write_eagle3(tmp_path), top_k=24, nodes=15, depth=4)
    plain, recorder = generate("llama", method, "text", 3), StandIn()
    recorded = generate("llama", method, "text", 3, graphs=recorder)
    assert recorder.replayed > 0
    compiled = generate("llama", method, "text", 3, compile={"fullgraph": True})
    for output in (recorded, compiled):
        assert output.tokens == plain.tokens
        assert output.stats.acceptance_histogram == plain.stats.acceptance_histogram
    assert any("not compiled" in note for note in compiled.stats.notes)


# --- files


def test_a_saved_head_is_the_same_head(tmp_path: Path) -> None:
    """In SpecForge's layout, whatever it was read from."""
    head = read(write_eagle3(tmp_path / "a", "speculators", layers=(2, 1, 1), embeddings=True))
    head.save_pretrained(tmp_path / "b")
    raw = json.loads((tmp_path / "b" / "config.json").read_text())
    assert raw["architectures"] == ["LlamaForCausalLMEagle3"]
    assert raw["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 0, 0]
    again = read(tmp_path / "b")
    assert again.config == head.config
    assert again.token_ids.tolist() == head.token_ids.tolist()
    for name, value in head.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    names = set(load_file(tmp_path / "b" / "model.safetensors"))
    assert {"midlayer.hidden_norm.weight", "fc.weight", "norm.weight", "lm_head.weight"} <= names
    assert {"d2t", "t2d"} <= names


def test_weights_in_pytorchs_format_are_read(tmp_path: Path) -> None:
    write_eagle3(tmp_path)
    expected = read(tmp_path).state_dict()
    torch.save(load_file(tmp_path / "model.safetensors"), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    head = sooner.load_drafter(tmp_path).head
    assert all(torch.equal(head.state_dict()[name], tensor) for name, tensor in expected.items())


def change(folder: Path, edit: Any) -> Path:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors")
    return folder


def offsets(value: Tensor) -> Any:
    return lambda weights: weights.update(d2t=value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda w: w.update({"midlayer.self_attn.g_proj.weight": torch.ones(2, 2)}),
         r"'midlayer\.self_attn\.g_proj\.weight' that is no part"),
        (lambda w: w.update(mask_hidden=torch.ones(2)), "'mask_hidden' that is no part"),
        (lambda w: w.pop("midlayer.mlp.up_proj.weight"), r"lacks layer\.mlp\.up_proj\.weight"),
        (lambda w: w.pop("lm_head.weight"), r"lacks lm_head\.weight"),
        (lambda w: w.pop("d2t"), "no 'd2t'"),
        (lambda w: w.update({"fc.weight": torch.ones(48, 96)}),
         r"'fc\.weight' .* is \[48, 96\], by its config\.json it must be \[48, 144\]"),
        (offsets(torch.zeros(39, dtype=torch.long)), "'d2t' has 39 entries"),
        (offsets(torch.full((40,), 60)), "leads to token 99"),
        (offsets(-torch.arange(40)), "two draft ids have one target id"),
        (lambda w: w.update(t2d=torch.ones(VOCAB, dtype=torch.bool)), "'t2d' keeps other tokens"),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_are_refused_by_name(
    edit: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(sooner.SoonerError, match=message):
        sooner.load_drafter(change(write_eagle3(tmp_path), edit))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_hidden_layers": 2}, "num_hidden_layers 2"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state"),
        ({"logit_scale": 0.5}, r"logit_scale 0\.5"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
        ({"layer_types": ["sliding_attention"]}, "sliding_attention layers"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1]}}, "must name three"),
        ({"hidden_size": -48}, r"hidden_size in '.*config.json' is -48; it must be a whole number"),
        ({"intermediate_size": "many"}, "intermediate_size in .* is 'many'; it must be .*; give"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps in .* is 'tiny'; it must be 0 or more; give the"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4, num_key_value_heads 3 and head_dim"),
    ],
)
def test_options_that_can_not_be_run_are_refused(
    config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(sooner.SoonerError, match=message):
        sooner.load_drafter(write_eagle3(tmp_path, **config))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({"read": 64}, "target with hidden_size 64, but .* has 48"),
        ({"hidden": 32, "read": 48}, "width of embedding and head 32, but .* has 48"),
        ({"layers": (0, 1, 5)}, r"hidden_states\[6\], but LlamaForCausalLM has 0 to 3"),
    ],
)
def test_another_target_is_refused(made: dict[str, Any], message: str, tmp_path: Path) -> None:
    method = sooner.load_drafter(write_eagle3(tmp_path, **made))
    with pytest.raises(sooner.SoonerError, match=message):
        generate("llama", method, "text", 1)
