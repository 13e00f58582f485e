"""EAGLE-2 in runs: what it drafts, what it costs nothing to get wrong, and what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MaxLengthCriteria, StoppingCriteriaList

import method_matrix as matrix
import sooner
import tiny
from sooner import Eagle, EagleHead
from sooner.decoding.acceptance import follow
from sooner.decoding.interface import Outcome
from sooner.decoding.tree import Tree
from sooner.methods.eagle.drafter import EagleDrafter
from sooner.methods.eagle.runner import HeadRunner
from sooner.models import adapt

WIDE = {"top_k": 32, "nodes": 48, "depth": 4}


def say(family: str, method: Any, kind: str, rows: int, new: int = 15, **options: Any) -> Any:
    options = {"eos_token_id": None, "do_sample": False, **options}
    model, inputs = tiny.model(family), tiny.inputs(family, kind, rows)
    return sooner.generate(model, inputs, method, max_new_tokens=new, **options)


@pytest.mark.parametrize("new", [1, 2, 3, 5, 6])
def test_the_limit_cuts_a_tree_where_plain_decoding_stops(new: int) -> None:
    expected = matrix.reference("openvla", "image", 2, new)
    made = say("openvla", Eagle(tiny.head("openvla"), **WIDE), "image", 2, new)
    assert made.sequences.tolist() == expected.tolist()
    assert (made.stats.num_draft_tokens > 0) == (new > 2)


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8])
def test_an_end_inside_a_tree_ends_the_row(at: int) -> None:
    family, kind, rows = "llava_onevision", "uneven", 3
    width = tiny.inputs(family, kind, rows)["input_ids"].shape[1]
    end = matrix.reference(family, kind, rows, matrix.LONG)[1, width + at].item()
    expected = matrix.reference(family, kind, rows, matrix.LONG, end)
    method = Eagle(tiny.head(family), **WIDE)
    made = say(family, method, kind, rows, matrix.LONG, eos_token_id=end)
    assert made.sequences.tolist() == expected.tolist()
    assert made.stats.num_accepted_draft_tokens > 0


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_a_prefill_in_chunks_changes_no_draft(chunk: int) -> None:
    method = Eagle(tiny.head("qwen2_5_vl"), **WIDE)
    whole = say("qwen2_5_vl", method, "mixed", 3)
    split = say("qwen2_5_vl", method, "mixed", 3, prefill_chunk_size=chunk)
    assert split.tokens == whole.tokens
    assert split.stats.acceptance_histogram == whole.stats.acceptance_histogram


def test_rows_draft_alone_as_they_do_together() -> None:
    """A batch's rows accept what they would accept by themselves, padding or not."""
    family, method = "qwen2", Eagle(tiny.head("qwen2"), **WIDE)
    together = say(family, method, "text", 3)
    inputs = tiny.inputs(family, "text", 3)
    counts = 0
    for row in range(3):
        real = inputs["attention_mask"][row].bool()
        alone = {name: value[row : row + 1, real] for name, value in inputs.items()}
        made = sooner.generate(
            tiny.model(family), alone, method,
            max_new_tokens=15, eos_token_id=None, do_sample=False,
        )  # fmt: skip
        assert made.tokens == [together.tokens[row]]
        counts += made.stats.num_accepted_draft_tokens
    assert counts == together.stats.num_accepted_draft_tokens


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


def test_drafting_with_a_cache_equals_computing_everything_anew() -> None:
    torch.manual_seed(3)
    model = tiny.model("llama")
    adapter, head = adapt(model), tiny.head("llama")
    hidden, lengths, fed = 48, [6, 2, 4], [1, 3, 2]
    embeds, states = torch.randn(3, 9, hidden), torch.randn(3, 9, hidden)
    runner = HeadRunner(head, adapter, 64)
    with torch.no_grad():
        runner.remember(embeds[:, :6], states[:, :6], lengths)
        more = [torch.stack([part[row, 6:9] for row in range(3)]) for part in (embeds, states)]
        got = runner.feed(*more, torch.tensor(fed), fed)
        real = [
            [
                torch.cat([part[row, : lengths[row]], part[row, 6 : 6 + fed[row]]])
                for row in range(3)
            ]
            for part in (embeds, states)
        ]
        for row in range(3):
            wanted = literal_states(head, real[0][row], real[1][row], [])
            torch.testing.assert_close(got[row, 0], wanted)
        # A tree: two children of the root, then three below them.
        first = torch.randint(0, 80, (3, 2))
        above = torch.tensor([[0, 1, 1], [1, 1, 0], [0, 0, 0]])
        second = torch.randint(0, 80, (3, 3))
        visible = runner.visible.expand(-1, 2, -1)
        level, visible = runner.level(first, got.expand(-1, 2, -1), 0, visible, 0)
        deeper, _ = runner.level(
            second,
            level.gather(1, above[..., None].expand(-1, -1, hidden)),
            1,
            visible.gather(1, above[..., None].expand(-1, -1, visible.shape[2])),
            2,
        )
        for row in range(3):
            for node in range(3):
                path = [first[row, above[row, node]], second[row, node]]
                tail = [model.get_input_embeddings()(token) for token in path]
                wanted = literal_states(head, real[0][row], real[1][row], tail)
                torch.testing.assert_close(deeper[row, node], wanted)


def literal_tree(
    head: EagleHead, model: Any, ids: Tensor, states: Tensor, depth: int, top_k: int, nodes: int
) -> dict[tuple[int, ...], float]:
    """Paths of a dynamic tree and their log-confidences, by the words of the paper.

    Args:
        ids: committed tokens, `[length]`.
        states: the target's of all but the last, `[length - 1, hidden]`.
    """
    embed = model.get_input_embeddings()
    found: dict[tuple[int, ...], float] = {}
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
        found |= children
        level = children
    kept = sorted(found, key=lambda path: -found[path])[:nodes]
    return {path: found[path] for path in kept}


def paths_of(tree: Tree, row: int) -> set[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    parents, tokens = tree.parents[row].tolist(), tree.tokens[row].tolist()
    for node in range(tree.sizes[row]):
        above = () if parents[node] < 0 else found[parents[node]]
        found.append((*above, tokens[node]))
    return set(found)


def test_the_trees_of_a_run_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tree, against states of HF's own forward over all committed tokens."""
    model, head = tiny.model("llama"), tiny.head("llama")
    inputs = tiny.inputs("llama", "text", 2)
    seen: list[tuple[list[Tensor], Tree]] = []
    grow = EagleDrafter.draft

    def spy(self: EagleDrafter, outcome: Outcome) -> Tree:
        tree = grow(self, outcome)
        prompts = [ids[mask.bool()] for ids, mask in zip(*inputs.values(), strict=True)]
        said = [
            torch.cat([prompts[original], torch.tensor(outcome.rows.generated[original])])
            for original in outcome.rows.active
        ]
        seen.append((said, tree))
        return tree

    monkeypatch.setattr(EagleDrafter, "draft", spy)
    options = {"top_k": 4, "depth": 3, "nodes": 9}
    sooner.generate(
        model, inputs, Eagle(head, **options), max_new_tokens=9, eos_token_id=None, do_sample=False
    )
    assert len(seen) > 3
    checked = 0
    with torch.no_grad():
        for said, tree in seen:
            for row, ids in enumerate(said):
                if tree.sizes[row] < 9:
                    continue  # near the limit trees are lower
                states = model.model(ids[None]).last_hidden_state[0, :-1]
                wanted = literal_tree(head, model, ids, states, **options)
                assert paths_of(tree, row) == set(wanted)
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_target_in_another_dtype_is_still_the_same(dtype: torch.dtype) -> None:
    """And the head that was given stays what it was: others may have it in hand."""
    target, head = copy.deepcopy(tiny.model("llama")).to(dtype), tiny.head("llama")
    made = sooner.generate(
        target, tiny.inputs("llama", "text", 1), Eagle(head),
        max_new_tokens=4, eos_token_id=None, do_sample=False,
    )  # fmt: skip
    assert made.stats.num_draft_tokens > 0
    assert {one.dtype for one in head.parameters()} == {torch.float32}


def test_a_saved_head_drafts_the_same(tmp_path: Any) -> None:
    head = tiny.head("qwen3_vl").with_provenance({"steps": 3})
    head.save_pretrained(tmp_path / "head")
    loaded = EagleHead.from_pretrained(tmp_path / "head")
    assert loaded.config == head.config
    ours, theirs = (
        say("qwen3_vl", Eagle(one, **WIDE), "image", 2) for one in (head, tmp_path / "head")
    )
    assert theirs.tokens == ours.tokens
    assert theirs.stats.acceptance_histogram == ours.stats.acceptance_histogram


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
    ("options", "told"),
    [
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": "most"}, "nodes is 'most'; it must be 'auto'"),
        ({"depth": 0}, "depth is 0"),
        ({"top_k": 1.5}, "top_k is 1.5"),
        ({"legal": []}, "legal is"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(sooner.SoonerError, match=told):
        Eagle(tiny.head("llama"), **options)


def test_legal_ids_of_another_vocabulary_are_refused() -> None:
    with pytest.raises(sooner.SoonerError, match="legal has id 96"):
        say("llama", Eagle(tiny.head("llama"), legal=range(90, 97)), "text", 1)


def test_only_legal_tokens_are_drafted(monkeypatch: pytest.MonkeyPatch) -> None:
    drafted: set[int] = set()
    grow = EagleDrafter.draft

    def spy(self: EagleDrafter, outcome: Outcome) -> Tree:
        tree = grow(self, outcome)
        drafted.update(tree.tokens[tree.valid()].tolist())
        return tree

    monkeypatch.setattr(EagleDrafter, "draft", spy)
    expected = matrix.reference("llama", "text", 2, 15)
    made = say("llama", Eagle(tiny.head("llama"), legal=range(20, 60)), "text", 2)
    assert made.sequences.tolist() == expected.tolist()
    assert drafted
    assert drafted <= set(range(20, 60))


class Anything:
    """A tolerance that takes every first child."""

    is_exact = False

    def rule(self, context: Any) -> Any:
        def rule(tree: Tree, scores: Tensor, processing: Any, noise: Any) -> Any:
            choices = processing.choose(scores, tree, noise)
            if tree.nodes:
                choices[:, 0] = tree.tokens[:, 0]
            return follow(tree, choices)

        return rule


def test_a_tolerance_decides_and_makes_the_run_relaxed() -> None:
    made = say("llama", Eagle(tiny.head("llama"), nodes=50, tolerance=Anything()), "text", 2)  # type: ignore[arg-type]
    assert made.stats.mode == "relaxed"
    assert made.stats.acceptance_histogram[0] <= 2  # where nothing could be drafted any more
    assert Eagle(tiny.head("llama")).mode == "exact"


def test_guidance_is_refused() -> None:
    inputs = tiny.inputs("llama", "text", 1)
    criteria = StoppingCriteriaList([MaxLengthCriteria(max_length=30)])
    with pytest.raises(sooner.UnsupportedError, match=r"guidance 2\.0"):
        Eagle(tiny.head("llama")).session(
            tiny.model("llama"), inputs, criteria=criteria, guidance=2.0
        )
