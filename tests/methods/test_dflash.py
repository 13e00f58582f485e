"""DFlash and DDTree in runs: marginals, trees, rows that come and go, and what is refused."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
import torch
from torch import Tensor

import sooner
import tiny
from methods.dflash_reference import literal_logits, recorded_drafts
from methods.trees import paths_of
from sooner import DDTree, DFlash, DFlashModel
from sooner.methods.dflash.model import DFlashConfig
from sooner.methods.growth import MarginalTrees
from sooner.methods.target_print import fingerprint
from sooner.models import adapt

GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": None}


# --- marginals, against the published layout written anew


LAYOUTS: dict[str, dict[str, Any]] = {
    "full": {},
    "sliding": {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 9},
    "sliding-both-ways": {
        "layer_types": ("sliding_attention",) * 2,
        "sliding_window": 9,
        "is_causal": False,
    },
    "every-state": {"layers": (0, 1, 2, 3)},
}


def drafter(layout: str, **more: Any) -> DFlashModel:
    torch.manual_seed(2)
    options = {**LAYOUTS.get(layout, {}), **more}
    config = _config(
        num_hidden_layers=2, block_size=6,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0}, **options,
    )  # fmt: skip
    model = DFlashModel(config).eval()
    for weights in model.parameters():
        weights.data.normal_(1.0 if weights.ndim == 1 else 0.0, 0.2)
    return model


@pytest.mark.parametrize("layout", LAYOUTS)
def test_marginals_are_those_of_the_published_layout(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every round of ragged rows, the context kept in the cache against none."""
    model, target, inputs = drafter(layout), tiny.model("llama"), tiny.inputs("llama", "text", 2)
    seen = recorded_drafts(inputs, monkeypatch)
    made = sooner.generate(target, inputs, DDTree(model, nodes=90), max_new_tokens=14, **GREEDY)
    assert made.stats.num_accepted_draft_tokens > 0
    assert len(seen) > 4
    with torch.no_grad():
        for texts, logits, _ in seen:
            for row, ids in enumerate(texts):
                expected = literal_logits(model, target, ids)
                torch.testing.assert_close(logits[row], expected, rtol=1e-4, atol=1e-4)


# --- trees of marginals


def literal_tree(p: Tensor, nodes: int) -> dict[tuple[int, ...], float]:
    """The most probable prefixes of a product of marginals, by a heap over rank vectors.

    Args:
        p: log-probabilities, `[places, vocab]`.
    """
    values, ids = p.sort(-1, descending=True)
    heap: list[tuple[float, tuple[int, ...]]] = [(-float(values[0, 0]), (0,))]
    chances: dict[tuple[int, ...], float] = {}
    while heap and len(chances) < nodes:
        cost, ranks = heapq.heappop(heap)
        chances[tuple(int(ids[place, rank]) for place, rank in enumerate(ranks))] = -cost
        here = len(ranks) - 1
        if ranks[-1] + 1 < p.shape[1]:  # the sibling behind it
            more = float(values[here, ranks[-1] + 1] - values[here, ranks[-1]])
            heapq.heappush(heap, (cost - more, (*ranks[:-1], ranks[-1] + 1)))
        if len(ranks) < len(p):  # its best child
            heapq.heappush(heap, (cost - float(values[here + 1, 0]), (*ranks, 0)))
    return chances


@pytest.mark.parametrize("nodes", [1, 2, 7, 24, 60])
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_a_tree_holds_the_likeliest_prefixes(nodes: int, spread: float) -> None:
    torch.manual_seed(nodes)
    p = (spread * torch.randn(3, 5, 11)).log_softmax(-1)
    values, tokens = p.topk(min(nodes, 11))
    tree = MarginalTrees().best(values, tokens, nodes, [5, 5, 5], is_open=False)
    for row in range(3):
        expected, paths = literal_tree(p[row], nodes), paths_of(tree, row)
        assert set(paths) == set(expected)
        chances = [expected[path] for path in paths]
        assert chances == sorted(chances, reverse=True), "the best come first"


def test_forbidden_tokens_are_in_no_tree() -> None:
    p = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]]).log()
    values, tokens = p.topk(3)
    tree = MarginalTrees().best(values, tokens, 9, [2], is_open=True)
    assert set(paths_of(tree, 0)) == {(0,), (1,), (0, 2), (1, 2)}


# --- targets


def test_another_target_is_refused_by_what_differs() -> None:
    inputs = tiny.inputs("llama", "text", 1)
    trained_for = fingerprint(adapt(tiny.model("llama", seed=5)))
    for more, message in (
        ({"target": trained_for}, r"another target \(.* are off by"),
        ({"hidden_size": 32}, "hidden_size 32, but LlamaForCausalLM has 48"),
        ({"vocab_size": 99}, "vocab_size 99, but LlamaForCausalLM has 96"),
        ({"mask_token_id": 96}, r"mask_token_id 96, .* ends at 95"),
        ({"layers": (1, 4)}, r"hidden_states\[4\], but LlamaForCausalLM has 0 to 3"),
    ):
        model = DFlashModel(_config(**more))
        with pytest.raises(sooner.SoonerError, match=message):
            sooner.generate(tiny.model("llama"), inputs, DFlash(model), max_new_tokens=4)


def _config(**more: Any) -> DFlashConfig:
    usual: dict[str, Any] = {
        "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "block_size": 4,
        "mask_token_id": 95, "layers": (1, 2),
    }  # fmt: skip
    return DFlashConfig(**{**usual, **more})


def test_options_are_checked() -> None:
    model = DFlashModel(_config())
    with pytest.raises(sooner.SoonerError, match="num_draft_tokens"):
        DFlash(model, num_draft_tokens=0)
    with pytest.raises(sooner.SoonerError, match="nodes"):
        DDTree(model, nodes=0)
    assert DFlash(model, num_draft_tokens=9).largest_block() == 4, "a block has three drafts"


def test_angles_stay_in_fp32_whatever_the_weights_are_in() -> None:
    """Angles of far positions would be wrong by radians in bf16."""
    model, far = DFlashModel(_config()), torch.tensor([[4001]])
    expected = model.rotation(far)
    moved = model.to(torch.bfloat16).rotation(far)
    for ours, other in zip(expected, moved, strict=True):
        torch.testing.assert_close(ours, other.float(), atol=5e-3, rtol=0)
