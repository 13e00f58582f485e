"""EAGLE-2 in runs: what it drafts, what it costs nothing to get wrong, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import method_matrix as matrix
import sooner
import tiny
from methods.doors import generate
from methods.trees import literal_tree, paths_of, record_trees
from sooner import Eagle, EagleHead

# --- the head, with its cache and without


def literal_states(head: EagleHead, embeds: Tensor, states: Tensor, tail: list[Tensor]) -> Tensor:
    """The estimate behind a path, every entry computed anew.

    Args:
        embeds, states: of the committed entries, `[entries, hidden]`.
        tail: embeddings of the path's tokens.
    """
    estimate = head(embeds[None], states[None])[0, -1]
    for embed in tail:
        embeds, states = torch.cat([embeds, embed[None]]), torch.cat([states, estimate[None]])
        estimate = head(embeds[None], states[None])[0, -1]
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
    with pytest.raises(sooner.SoonerError, match=r"another target \(.* is off by"):
        sooner.generate(other, inputs, Eagle(tiny.head("llama")), max_new_tokens=4)
    with pytest.raises(sooner.SoonerError, match=r"model_type llama, not qwen2"):
        sooner.generate(tiny.model("qwen2"), inputs, Eagle(tiny.head("llama")), max_new_tokens=4)


def test_files_that_are_no_head_are_refused_in_a_line(tmp_path: Any) -> None:
    with pytest.raises(sooner.SoonerError, match=r"no readable config\.json"):
        Eagle(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(sooner.SoonerError, match="of model_type 'llama', a draft head"):
        EagleHead.from_pretrained(tmp_path)
    tiny.head("llama").save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"head_dim"', '"head_dims"'))
    with pytest.raises(sooner.SoonerError, match="did you mean 'head_dim'"):
        EagleHead.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(sooner.SoonerError, match=r"model\.safetensors' can't be read"):
        EagleHead.from_pretrained(tmp_path)


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
