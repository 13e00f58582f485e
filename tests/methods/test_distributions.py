"""Sampling through the whole loop keeps the target's joint distribution, whatever the method.

The target is a `FakeAdapter`: its next token depends on everything said before, and it reads that
from the real slot cache through the real masks and positions. A correct engine fails one of these
tests with probability `fakes.ERROR` by chance; seeds are fixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import logits_process as hf

import sooner
import tiny
from fake_models import (
    FakeAdapter,
    FakeAssistant,
    FakeBlockDrafter,
    FakeHead,
    adapt_fakes,
    generate_ids,
)
from fakes import ERROR, Table, chi_square
from same_drafts import SameDrafts
from sooner.engine.acceptance import reject_tree
from sooner.engine.cache import SlotCache
from sooner.engine.interface import Drafter, Outcome
from sooner.engine.loop import Rule
from sooner.engine.noise import RowNoise
from sooner.engine.sampling import Processing
from sooner.engine.tree import Tree
from sooner.methods import speculative
from sooner.methods.context import Context
from sooner.methods.rules import follow_choices
from sooner.methods.speculative import reject

VOCAB, LENGTH, SAMPLES = 3, 5, 12_000
TARGET = Table(VOCAB, LENGTH, seed=1)
NEAR = Table(VOCAB, LENGTH, seed=2, near=TARGET)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


def speculate(num_draft_tokens: Any, draft: Table = NEAR) -> sooner.Speculative:
    return sooner.Speculative(FakeAdapter(draft), num_draft_tokens=num_draft_tokens)


class TopTree(Drafter):
    """A tree of the draft's best tokens: siblings fixed by rank, hence followed."""

    parents = (-1, -1, 0, 1, 0, 2)
    ranks = (0, 1, 0, 0, 1, 0)

    def __init__(self, table: Table) -> None:
        self.table = table

    def propose(self, outcome: Outcome) -> Tree:
        tokens, parents = [], []
        for row, budget in enumerate(outcome.budget):
            drafted, above = self._row(outcome.rows.output(row), budget)
            tokens.append(drafted)
            parents.append(above)
        return Tree.from_lists(tokens, parents)

    def _row(self, output: list[int], budget: int) -> tuple[list[int], list[int]]:
        prefix = 0
        for token in output:
            prefix = prefix * VOCAB + token + 1
        entries, depths, tokens = [prefix], [0], []
        for parent, rank in zip(self.parents, self.ranks, strict=True):
            best = self.table.at(torch.tensor(entries[parent + 1])).argsort(descending=True)
            tokens.append(int(best[rank]))
            entries.append(entries[parent + 1] * VOCAB + tokens[-1] + 1)
            depths.append(depths[parent + 1] + 1)
        fits = all(depth < budget for depth in depths)
        return (tokens, list(self.parents)) if fits else ([], [])


class DrawnTree(TopTree):
    """A tree of that shape with siblings drawn without replacement, hence rejected."""

    def propose(self, outcome: Outcome) -> Tree:
        rows, nodes = len(outcome.budget), len(self.parents)
        entries = torch.zeros(rows, 1 + nodes, dtype=torch.long)
        for row in range(rows):
            for token in outcome.rows.output(row):
                entries[row, 0] = entries[row, 0] * VOCAB + token + 1
        tokens = torch.zeros(rows, nodes, dtype=torch.long)
        for above in sorted(set(self.parents)):
            children = [node for node, parent in enumerate(self.parents) if parent == above]
            at = entries[:, above + 1]
            tokens[:, children] = torch.multinomial(self.table.at(at), len(children))
            for node in children:
                entries[:, node + 1] = self.table.extend(at, tokens[:, node])
        shape = torch.tensor(self.parents).expand(rows, -1)
        sizes = [nodes if budget > 3 else 2 if budget > 1 else 0 for budget in outcome.budget]
        return Tree.of(tokens, shape, sizes, self.table.at(entries))


def tree_method(drafter: Drafter) -> sooner.Method:
    class TreeMethod(sooner.Autoregressive):
        def largest_block(self) -> int:
            return 1 + len(TopTree.parents)

        def build(self, context: Context) -> tuple[Drafter, Rule]:
            return drafter, follow_choices

    return TreeMethod()


def judge_tree(
    tree: Tree, scores: torch.Tensor, processing: Processing, noise: RowNoise
) -> speculative.VerifyResult:
    if tree.probs is None:
        return reject(tree, scores, processing, noise)
    return reject_tree(tree, processing.probabilities(scores), noise)


METHODS = {
    "plain": sooner.Autoregressive(),
    "prompt-lookup": sooner.PromptLookup(num_draft_tokens=3, max_ngram=2),
    "prompt-lookup-1": sooner.PromptLookup(num_draft_tokens=1, max_ngram=1),
    "window-1": speculate(1),
    "window-2": speculate(2),
    "window-4": speculate(4),
    "window-7": speculate(7),
    "auto": speculate("auto"),
    "useless-draft": speculate(3, Table(VOCAB, LENGTH, seed=9)),
    "perfect-draft": speculate(3, TARGET),
    "top-tree": tree_method(TopTree(NEAR)),
    "hsd": SameDrafts([[[2, 1, 0, 2, 1], [0, 1, 2], [1]]], reference_window=2, nodes=6),
    "eagle": sooner.Eagle(FakeHead(VOCAB, seed=6), nodes=5, depth=3, top_k=2),
    "eagle-wide": sooner.Eagle(FakeHead(VOCAB, seed=6)),
    "eagle-reduced": sooner.Eagle(FakeHead(VOCAB, seed=6, drafted=(0, 2)), nodes=5, depth=3),
    "eagle-reduced-legal": sooner.Eagle(
        FakeHead(VOCAB, seed=6, drafted=(0, 2)), nodes=4, depth=3, legal=(1, 2)
    ),
    "dflash": sooner.DFlash(FakeBlockDrafter(VOCAB, 5, seed=4), num_draft_tokens=4),
    "dflash-reduced": sooner.DFlash(
        FakeBlockDrafter(VOCAB, 4, seed=4, token_ids=(0, 2)), num_draft_tokens=3
    ),
    "ddtree": sooner.DDTree(FakeBlockDrafter(VOCAB, 4, seed=4), nodes=9),
    "ddtree-reduced": sooner.DDTree(FakeBlockDrafter(VOCAB, 4, seed=4, token_ids=(0, 2)), nodes=9),
    "assistant": sooner.Assistant(FakeAssistant(VOCAB, seed=7), num_draft_tokens=3),
    "eagle-legal": sooner.Eagle(FakeHead(VOCAB, seed=6), nodes=4, depth=4, legal=(0, 2)),
}


@pytest.mark.parametrize("name", METHODS)
def test_sampled_sequences_follow_the_targets_joint_distribution(name: str) -> None:
    samples = generate_ids(METHODS[name], FakeAdapter(TARGET), SAMPLES, LENGTH)
    assert chi_square(samples, TARGET.joint()) > ERROR


def test_a_drawn_tree_under_rejection_follows_the_joint_distribution() -> None:
    method = tree_method(DrawnTree(NEAR))
    samples = generate_ids(method, FakeAdapter(TARGET), SAMPLES, LENGTH, rule=judge_tree)
    assert chi_square(samples, TARGET.joint()) > ERROR


def cut(joint: dict[tuple[int, ...], float], end: int) -> dict[tuple[int, ...], float]:
    """The joint distribution of sequences that stop at `end`."""
    cells: dict[tuple[int, ...], float] = {}
    for sequence, chance in joint.items():
        stop = sequence.index(end) + 1 if end in sequence else len(sequence)
        cell = sequence[:stop] + (-1,) * (len(sequence) - stop)
        cells[cell] = cells.get(cell, 0.0) + chance
    return cells


@pytest.mark.parametrize("name", METHODS)
def test_rows_that_end_early_follow_the_joint_distribution(name: str) -> None:
    """Ends inside drafts, and a batch that shrinks while others go on."""
    samples = generate_ids(METHODS[name], FakeAdapter(TARGET), 4000, LENGTH, end=2)
    assert chi_square(samples, cut(TARGET.joint(), 2)) > ERROR


class Processed(Table):
    """A table after logits processors, as a reference that never saw the engine."""

    def __init__(self, table: Table, processors: LogitsProcessorList) -> None:
        super().__init__(table.vocab, table.length, seed=0)
        nothing = torch.zeros(len(table.p), 0, dtype=torch.long)
        self.p = processors(nothing, table.p.log()).softmax(-1)


PROCESSORS = {
    "cold": [hf.TemperatureLogitsWarper(0.6)],
    "hot": [hf.TemperatureLogitsWarper(1.7)],
    "top-k": [hf.TopKLogitsWarper(2)],
    "top-p": [hf.TopPLogitsWarper(0.8)],
    "all": [
        hf.TemperatureLogitsWarper(1.3), hf.TopKLogitsWarper(3), hf.TopPLogitsWarper(0.9),
        hf.MinPLogitsWarper(0.1),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "method", ["plain", "window-4", "prompt-lookup", "eagle", "dflash", "ddtree"]
)
@pytest.mark.parametrize("name", PROCESSORS)
def test_processed_sequences_follow_the_processed_joint_distribution(
    method: str, name: str
) -> None:
    processors = LogitsProcessorList(PROCESSORS[name])
    samples = generate_ids(
        METHODS[method], FakeAdapter(TARGET), 6000, LENGTH, processors=processors
    )
    assert chi_square(samples, Processed(TARGET, processors).joint()) > ERROR


class SeldomTwice(hf.LogitsProcessor):
    """Lowers the token just said: a processor that reads the prefix."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        last = input_ids[:, -1:]
        return scores.scatter_add(1, last, -torch.ones_like(last, dtype=scores.dtype))


def test_processors_that_read_the_prefix_change_the_joint_distribution_as_they_should() -> None:
    table = Table(2, 4, seed=4)
    expected = Table(2, 4, seed=4)
    logits = table.p.log()
    logits[0, 0] -= 1.0  # prompts are zeros
    for prefix in range(1, len(logits)):
        logits[prefix, (prefix - 1) % 2] -= 1.0
    expected.p = logits.softmax(-1)
    method = speculate(3, Table(2, 4, seed=5, near=table))
    processors = LogitsProcessorList([SeldomTwice()])
    samples = [
        generate_ids(method, FakeAdapter(table), 40, 4, processors=processors) for _ in range(50)
    ]
    assert chi_square(torch.cat(samples), expected.joint()) > ERROR
    assert chi_square(torch.cat(samples), table.joint()) < ERROR


# Planted biases: were one of these not seen, the tests above would prove nothing.


def test_a_draft_distribution_without_the_targets_processing_is_seen() -> None:
    """The draft stores probabilities that it did not draw from."""

    def verify(
        tree: Tree, scores: Any, processing: Any, noise: RowNoise
    ) -> speculative.VerifyResult:
        if tree.probs is not None:
            warm = tree.probs.sqrt()
            tree = replace(tree, probs=warm / warm.sum(-1, keepdim=True).clamp(min=1e-9))
        return reject(tree, scores, processing, noise)

    samples = generate_ids(speculate(2), FakeAdapter(TARGET), SAMPLES, LENGTH, rule=verify)
    assert chi_square(samples, TARGET.joint()) < ERROR


def test_keeping_a_rejected_slot_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake reads its prefix from the cache, so a wrong path in it can't stay hidden."""

    commit_path = SlotCache.commit_path

    def forgetful(self: Any, path: Any, entries: Any, is_chain: bool) -> None:
        commit_path(self, path, entries, is_chain=True)

    monkeypatch.setattr(SlotCache, "commit_path", forgetful)
    samples = None
    try:
        samples = generate_ids(tree_method(TopTree(NEAR)), FakeAdapter(TARGET), SAMPLES, LENGTH)
    except AssertionError:
        return  # the fake found a position in the wrong place
    assert chi_square(samples, TARGET.joint()) < ERROR


@pytest.mark.parametrize("rows", [1, 3])
def test_a_global_seed_and_a_seed_argument_draw_alike(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.manual_seed` makes a run reproducible: one number of the generator is its seed."""
    monkeypatch.undo()
    model, inputs = tiny.model("qwen2_5_vl"), tiny.inputs("qwen2_5_vl", "image", rows)
    options = {"do_sample": True, "max_new_tokens": 12, "eos_token_id": None}
    outputs = []
    for seed in (21, 21, 22):
        torch.manual_seed(seed)
        outputs.append(model.generate(**inputs, **options, custom_generate=sooner.Autoregressive()))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    by_seed = sooner.generate(model, inputs, seed=21, **options).sequences
    assert torch.equal(by_seed, outputs[0])
