"""EAGLE-2 in runs: what it drafts, what it costs nothing to get wrong, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import method_matrix as matrix
import sooner
import tiny
from sooner import Eagle, EagleHead
from sooner.engine.interface import Outcome
from sooner.engine.tree import Tree
from sooner.methods.eagle.drafter import EagleDrafter


def generate(family: str, method: Any, kind: str, rows: int, new: int = 15, **options: Any) -> Any:
    options = {"eos_token_id": None, "do_sample": False, **options}
    model, inputs = tiny.model(family), tiny.inputs(family, kind, rows)
    return sooner.generate(model, inputs, method, max_new_tokens=new, **options)


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


def literal_tree(
    head: EagleHead, model: Any, ids: Tensor, states: Tensor, depth: int, top_k: int, nodes: int
) -> dict[tuple[int, ...], float]:
    """Paths of a dynamic tree and their log-confidences, by the words of the paper.

    Args:
        ids: committed tokens, `[length]`.
        states: the target's of all but the last, `[length - 1, hidden]`.
    """
    embed = model.get_input_embeddings()
    values: dict[tuple[int, ...], float] = {}
    level: dict[tuple[int, ...], float] = {(): 0.0}
    for _ in range(depth):
        children = {}
        best = sorted(level, key=lambda path: -level[path])[:top_k]
        for path in best:
            tail = [embed(torch.tensor(token)) for token in path]
            estimate = literal_states(head, embed(ids[1:]), states, tail)
            logp = model.lm_head(estimate).log_softmax(-1)
            for value, token in zip(*(part.tolist() for part in logp.topk(top_k)), strict=True):
                children[(*path, token)] = level[path] + value
        values |= children
        level = children
    top_paths = sorted(values, key=lambda path: -values[path])[:nodes]
    return {path: values[path] for path in top_paths}


def paths_of(tree: Tree, row: int) -> set[tuple[int, ...]]:
    paths: list[tuple[int, ...]] = []
    parents, tokens = tree.parents[row].tolist(), tree.tokens[row].tolist()
    for node in range(tree.sizes[row]):
        above = () if parents[node] < 0 else paths[parents[node]]
        paths.append((*above, tokens[node]))
    return set(paths)


def test_the_trees_of_a_run_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tree, against states of HF's own forward over all committed tokens."""
    model, head = tiny.model("llama"), tiny.head("llama")
    inputs = tiny.inputs("llama", "text", 2)
    seen: list[tuple[list[Tensor], Tree]] = []
    grow = EagleDrafter.draft

    def spy(self: EagleDrafter, outcome: Outcome) -> Tree:
        tree = grow(self, outcome)
        prompts = [ids[mask.bool()] for ids, mask in zip(*inputs.values(), strict=True)]
        texts = [
            torch.cat([prompts[original], torch.tensor(outcome.rows.generated[original])])
            for original in outcome.rows.active
        ]
        seen.append((texts, tree))
        return tree

    monkeypatch.setattr(EagleDrafter, "draft", spy)
    options = {"top_k": 4, "depth": 3, "nodes": 9}
    sooner.generate(
        model, inputs, Eagle(head, **options), max_new_tokens=9, eos_token_id=None, do_sample=False
    )
    assert len(seen) > 3
    checked = 0
    with torch.no_grad():
        for texts, tree in seen:
            for row, ids in enumerate(texts):
                if tree.sizes[row] < 9:
                    continue  # near the limit trees are lower
                states = model.model(ids[None]).last_hidden_state[0, :-1]
                expected = literal_tree(head, model, ids, states, **options)
                assert paths_of(tree, row) == set(expected)
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
    drafted: set[int] = set()
    grow = EagleDrafter.draft

    def spy(self: EagleDrafter, outcome: Outcome) -> Tree:
        tree = grow(self, outcome)
        drafted.update(tree.tokens[tree.valid()].tolist())
        return tree

    monkeypatch.setattr(EagleDrafter, "draft", spy)
    expected = matrix.reference("llama", "text", 2, 15)
    made = generate("llama", Eagle(tiny.head("llama"), legal=range(20, 60)), "text", 2)
    assert made.sequences.tolist() == expected.tolist()
    assert drafted
    assert drafted <= set(range(20, 60))
