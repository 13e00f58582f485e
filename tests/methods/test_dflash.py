"""DFlash and DDTree in runs: marginals, trees, rows that come and go, and what is refused."""

from __future__ import annotations

import heapq
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu

import sooner
import tiny
from methods.trees import paths_of, texts_of
from sooner import DDTree, DFlash, DFlashModel
from sooner.engine.tree import Tree
from sooner.methods.dflash.method import BlockDrafter, BlockRunner
from sooner.methods.dflash.model import DFlashConfig
from sooner.methods.growth import MarginalTrees
from sooner.methods.target_print import fingerprint
from sooner.models import adapt

GREEDY: dict[str, Any] = {"do_sample": False, "eos_token_id": None}


# --- marginals, against the published layout written anew


def literal_logits(model: DFlashModel, target: Any, ids: Tensor) -> Tensor:
    """Logits of a block behind `ids [length]`, everything computed anew: `[places, vocab]`.

    Args:
        ids: committed tokens; the last one is the anchor.
    """
    config, weights = model.config, model.state_dict()

    def norm(x: Tensor, name: str) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + config.rms_norm_eps).rsqrt() * weights[name]

    def heads(x: Tensor) -> Tensor:
        return x.view(len(x), -1, config.head_dim)

    size, past, dim = config.block_size, len(ids) - 1, config.head_dim
    frequencies = 10_000.0 ** (-torch.arange(0, dim, 2) / dim)
    angles = torch.arange(past + size)[:, None] * frequencies
    cos, sin = torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()

    def rotate(x: Tensor, first: int) -> Tensor:
        turned = torch.cat([-x[..., dim // 2 :], x[..., : dim // 2]], -1)
        places = slice(first, first + len(x))
        return x * cos[places, None] + turned * sin[places, None]

    hidden_states = target.model(ids[None, :-1], output_hidden_states=True).hidden_states
    states = torch.cat([hidden_states[layer][0] for layer in config.layers], -1)
    context = norm(linear(states, weights["fc.weight"]), "hidden_norm.weight")
    block = torch.full((size,), config.mask_token_id)
    block[0] = ids[-1]
    x = target.get_input_embeddings()(block)
    place = torch.arange(past + size)
    for layer in range(config.num_hidden_layers):
        at = f"layers.{layer}."
        entering = norm(x, at + "input_layernorm.weight")
        q, k, v = (weights[f"{at}self_attn.{name}_proj.weight"] for name in "qkv")
        whole = torch.cat([context, entering])
        queries = rotate(norm(heads(linear(entering, q)), at + "self_attn.q_norm.weight"), past)
        keys = rotate(norm(heads(linear(whole, k)), at + "self_attn.k_norm.weight"), 0)
        groups = config.num_attention_heads // config.num_key_value_heads
        keys, values = (
            part.repeat_interleave(groups, 1) for part in (keys, heads(linear(whole, v)))
        )
        scores = torch.einsum("qhd,khd->hqk", queries, keys) * dim**-0.5
        query_place = place[past:, None]
        if config.causal[layer]:
            scores = scores.masked_fill(place > query_place, -torch.inf)
        if (window := config.windows[layer]) is not None:
            scores = scores.masked_fill(query_place - place >= window, -torch.inf)
        attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).flatten(1)
        x = x + linear(attended, weights[at + "self_attn.o_proj.weight"])
        y = norm(x, at + "post_attention_layernorm.weight")
        gate, up, down = (weights[f"{at}mlp.{name}_proj.weight"] for name in ("gate", "up", "down"))
        x = x + linear(silu(linear(y, gate)) * linear(y, up), down)
    return target.lm_head(norm(x, "norm.weight"))[1:]


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
    seen: list[tuple[list[Tensor], Tensor]] = []
    propose, draft = BlockDrafter.propose, BlockRunner.draft
    recorded: list[Tensor] = []

    def record(self: BlockRunner, anchors: Tensor) -> Tensor:
        recorded.append(draft(self, anchors))
        return recorded[-1]

    def spy(self: BlockDrafter, outcome: Any) -> Tree:
        before = len(recorded)
        tree = propose(self, outcome)
        if len(recorded) > before:
            seen.append((texts_of(inputs, outcome.rows), recorded[-1]))
        return tree

    monkeypatch.setattr(BlockRunner, "draft", record)
    monkeypatch.setattr(BlockDrafter, "propose", spy)
    made = sooner.generate(target, inputs, DDTree(model, nodes=90), max_new_tokens=14, **GREEDY)
    assert made.stats.num_accepted_draft_tokens > 0
    assert len(seen) > 4
    with torch.no_grad():
        for texts, logits in seen:
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
