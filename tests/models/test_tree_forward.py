"""One forward over a ragged batch of trees equals HF's incremental decoding along every path."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import tiny
from sooner.engine.interface import Prompt
from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree
from sooner.models import adapt

TREES = Tree.from_lists(
    [[11, 22, 33, 44, 55, 66], [12, 23, 34], [13, 24, 35, 46]],
    [[-1, -1, 0, 1, 1, 3], [-1, 0, 0], [-1, -1, -1, 2]],
)
ROOTS = torch.tensor([7, 8, 9])
LEAVES = ([2, 4, 5], [1, 2, 2], [0, 1, 3])
"""Leaves of each row; the paths to them lead through all nodes."""

PAIRS = [(family, kind) for family in tiny.FAMILIES for kind in tiny.kinds(family)]


def incremental(family: str, kind: str, generated: list[list[int]]) -> Tensor:
    """HF's logits behind each row's prompt and its tokens, said one at a time."""
    forced = torch.tensor(generated)

    def force(row: int, ids: Tensor) -> list[int]:
        step = len(ids) - width
        return [int(forced[row, step])] if step < forced.shape[1] else list(range(tiny.VOCAB))

    inputs = tiny.inputs(family, kind, len(generated))
    width = inputs["input_ids"].shape[1]
    output = tiny.model(family).generate(
        **inputs,
        max_new_tokens=forced.shape[1] + 1,
        eos_token_id=None,
        do_sample=False,
        prefix_allowed_tokens_fn=force,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return torch.stack(output.logits, 1)  # [rows, 1 + tokens, vocab]


def prefilled(family: str, kind: str, rows: int = 3, room: int = 24) -> tuple[ModelRunner, Prompt]:
    adapter = adapt(tiny.model(family))
    prompt = adapter.embed_prompt(tiny.inputs(family, kind, rows))
    runner = ModelRunner(adapter, prompt.width + room)
    return runner, prompt


def path_to(tree: Tree, row: int, node: int) -> list[int]:
    nodes = []
    while node >= 0:
        nodes.append(node)
        node = int(tree.parents[row, node])
    return nodes[::-1]


def close(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("family", "kind"), PAIRS)
@torch.no_grad()
def test_every_path_of_ragged_trees_equals_incremental_decoding(family: str, kind: str) -> None:
    runner, prompt = prefilled(family, kind)
    first = runner.prefill(prompt)
    forward = runner.forward_tree(ROOTS, TREES)
    for leaves in zip(*LEAVES, strict=True):
        nodes = [path_to(TREES, row, leaf) for row, leaf in enumerate(leaves)]
        length = max(len(path) for path in nodes)
        sequences = [
            [int(ROOTS[row]), *TREES.tokens[row, path].tolist(), *[1] * (length - len(path))]
            for row, path in enumerate(nodes)
        ]
        expected = incremental(family, kind, sequences)
        close(first.logits[:, 0], expected[:, 0])
        for row, path in enumerate(nodes):
            entries = [0, *[node + 1 for node in path]]
            close(forward.logits[row, entries], expected[row, 1 : 1 + len(entries)])


@pytest.mark.parametrize(
    ("family", "kind"),
    [(f, "uneven" if f not in tiny.TEXT_FAMILIES else "text") for f in tiny.FAMILIES],
)
@torch.no_grad()
def test_a_tree_after_a_committed_path_and_dropped_rows_equals_incremental_decoding(
    family: str, kind: str
) -> None:
    """Commit different paths, drop a row, grow another tree: what a few rounds leave behind."""
    runner, prompt = prefilled(family, kind)
    runner.prefill(prompt)
    runner.forward_tree(ROOTS, TREES)
    runner.commit([[0, 2, 4, 6], [0], [0, 3, 4]])
    runner.select_rows([2, 0])
    trees = TREES.select_rows([1, 2])
    roots = torch.tensor([70, 71])
    forward = runner.forward_tree(roots, trees)
    committed = {0: [7, 22, 44, 66], 2: [9, 35, 46]}
    for place, row in enumerate((2, 0)):
        for node in range(trees.sizes[place]):
            path = path_to(trees, place, node)
            generated = committed[row] + [int(roots[place])] + trees.tokens[place, path].tolist()
            batch = [[1] * len(generated)] * 3
            batch[row] = generated
            expected = incremental(family, kind, batch)[row, -1]
            close(forward.logits[place, node + 1], expected)


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
@torch.no_grad()
def test_mrope_positions_go_on_from_the_last_token_and_not_from_the_length(family: str) -> None:
    """Otherwise the tests above would not test M-RoPE at all."""
    prompt = adapt(tiny.model(family)).embed_prompt(tiny.inputs(family, "images", 2))
    assert prompt.positions.shape == (3, 2, prompt.width)
    assert prompt.next_position.shape == (3, 2)
    for row, length in enumerate(prompt.lengths):
        last = prompt.positions[:, row, length - 1]
        assert torch.equal(prompt.next_position[:, row], last + 1)
        assert (last + 1 < length).all()
    assert not torch.equal(prompt.positions[1], prompt.positions[2])


@torch.no_grad()
def test_a_long_video_is_ahead_of_the_text_after_it() -> None:
    """HF's `generate` goes on from the last token, not from the largest position."""
    prompt = adapt(tiny.model("qwen2_5_vl")).embed_prompt(tiny.inputs("qwen2_5_vl", "video", 1))
    assert int(prompt.positions.max()) > int(prompt.next_position.max())


@torch.no_grad()
def test_deepstack_features_reach_the_decoder_and_matter() -> None:
    runner, prompt = prefilled("qwen3_vl", "mixed")
    assert len(prompt.extras["deepstack_visual_embeds"]) == 2
    whole = runner.prefill(prompt).logits
    bare, prompt = prefilled("qwen3_vl", "mixed")
    prompt.extras = {}
    assert (bare.prefill(prompt).logits - whole).abs().max() > 1e-3
