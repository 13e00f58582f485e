"""Sampling through the whole loop keeps the target's joint distribution, whatever the method.

The target is a `FakeAdapter`: its next token depends on everything said before, and it reads that
from the real slot cache through the real masks and positions. A correct engine fails one of these
tests with probability `fakes.ERROR` by chance; seeds are fixed.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import logits_process as hf

import sooner
import tiny
from covering import diagonal, thinned
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
from sooner.engine.cache import SlotCache
from sooner.engine.noise import RowNoise
from sooner.engine.tree import Tree
from sooner.methods import speculative
from sooner.methods.speculative import reject

VOCAB, LENGTH, SAMPLES = 3, 5, 8_000
TARGET = Table(VOCAB, LENGTH, seed=1)
NEAR = Table(VOCAB, LENGTH, seed=2, near=TARGET)


@pytest.fixture(autouse=True)
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    adapt_fakes(monkeypatch)


def speculate(num_draft_tokens: Any, draft: Table = NEAR) -> sooner.Speculative:
    return sooner.Speculative(FakeAdapter(draft), num_draft_tokens=num_draft_tokens)


TREES = {
    "wide": ((3,), (2, 1, 1), (1, 1), (2,)),
    "flat": ((3,),),
    "late": ((1,), (3,), (0, 2, 1), (1, 0, 2)),
}
LIKELY = list(max(TARGET.joint().items(), key=lambda item: item[1])[0])
DRAFTS: dict[str, list[list[int]]] = {
    "likeliest": [LIKELY],
    "several": [LIKELY, [0, 1, 2, 0, 1], [2, 2], [1]],
    "regions": [LIKELY[3:], LIKELY[:3]],
    "everything": [list(text) for text in itertools.product(range(VOCAB), repeat=3)],
}

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
    **{
        f"{shape}-{siblings}": sooner.SDTree(FakeAdapter(NEAR), branching, siblings)
        for shape, branching in TREES.items()
        for siblings in ("drawn", "top")
    },
    **{
        f"hsd-{name}": SameDrafts([drafts], reference_window=2, nodes=8)
        for name, drafts in DRAFTS.items()
    },
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
    "dflash-chain": sooner.DFlash(
        FakeBlockDrafter(VOCAB, 5, seed=4, is_chain=True), num_draft_tokens=4
    ),
    "ddtree": sooner.DDTree(FakeBlockDrafter(VOCAB, 4, seed=4), nodes=9),
    "ddtree-reduced": sooner.DDTree(FakeBlockDrafter(VOCAB, 4, seed=4, token_ids=(0, 2)), nodes=9),
    "assistant": sooner.Assistant(FakeAssistant(VOCAB, seed=7), num_draft_tokens=3),
    "eagle-legal": sooner.Eagle(FakeHead(VOCAB, seed=6), nodes=4, depth=4, legal=(0, 2)),
}


VARIANTS = {
    "prompt-lookup-1", "window-1", "window-7", "perfect-draft", "flat-drawn", "flat-top",
    "hsd-likeliest", "hsd-regions", "eagle-wide", "eagle-reduced", "eagle-legal", "dflash-reduced",
}  # fmt: skip
"""Methods that differ from others in a size, or of which another has two options at once."""


@pytest.mark.parametrize("name", thinned(METHODS, METHODS.keys() - VARIANTS))
def test_sampled_sequences_follow_the_targets_joint_distribution(name: str) -> None:
    samples = generate_ids(METHODS[name], FakeAdapter(TARGET), SAMPLES, LENGTH)
    assert chi_square(samples, TARGET.joint()) > ERROR


@pytest.mark.parametrize("siblings", ["drawn", "top"])
def test_a_tree_with_forbidden_tokens_keeps_the_distribution(siblings: Any) -> None:
    """The draft forbids other tokens than the target, and is useless."""
    target, draft = (Table(VOCAB, LENGTH, seed=seed, zeros=True) for seed in (3, 4))
    method = sooner.SDTree(FakeAdapter(draft), TREES["wide"], siblings)
    samples = generate_ids(method, FakeAdapter(target), SAMPLES, LENGTH)
    assert chi_square(samples, target.joint()) > ERROR


def cut(joint: dict[tuple[int, ...], float], end: int) -> dict[tuple[int, ...], float]:
    """The joint distribution of sequences that stop at `end`."""
    cells: dict[tuple[int, ...], float] = {}
    for sequence, chance in joint.items():
        stop = sequence.index(end) + 1 if end in sequence else len(sequence)
        cell = sequence[:stop] + (-1,) * (len(sequence) - stop)
        cells[cell] = cells.get(cell, 0.0) + chance
    return cells


ENDING = (
    "plain", "prompt-lookup", "window-4", "auto", "late-drawn", "wide-top", "hsd-several", "eagle",
    "eagle-reduced-legal", "dflash", "ddtree-reduced", "assistant",
)  # fmt: skip
"""A method of each kind of draft and rule."""


@pytest.mark.parametrize("name", ENDING)
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


DRAFTERS = ("plain", "window-4", "prompt-lookup", "eagle", "dflash", "dflash-chain", "ddtree")


@pytest.mark.parametrize(("method", "name"), diagonal(DRAFTERS, [*PROCESSORS]))
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


def test_a_threshold_is_seen() -> None:
    method = SameDrafts([DRAFTS["likeliest"]], acceptance_threshold=0.2, nodes=8)
    samples = generate_ids(method, FakeAdapter(TARGET), SAMPLES, LENGTH)
    assert chi_square(samples, TARGET.joint()) < ERROR


def test_keeping_a_rejected_slot_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake reads its prefix from the cache, so a wrong path in it can't stay hidden."""

    commit_path = SlotCache.commit_path

    def forgetful(self: Any, path: Any, entries: Any, is_chain: bool) -> None:
        commit_path(self, path, entries, is_chain=True)

    monkeypatch.setattr(SlotCache, "commit_path", forgetful)
    samples = None
    try:
        samples = generate_ids(METHODS["late-top"], FakeAdapter(TARGET), SAMPLES, LENGTH)
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
