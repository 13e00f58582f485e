"""The engine's own step, by the draft that it verifies: chains and trees, followed or rejected.

A step is `sooner.decoding.step.step`: forward by block attention, judge, stop, commit. What a
method brings to it is the shape of its drafts and its rule, so methods that share both share one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sooner.attention.context import attending_to_blocks
from sooner.decoding.noise import RowNoise
from sooner.decoding.runner import ModelRunner
from sooner.decoding.sampling import Processing
from sooner.decoding.step import RowState, Rule, step
from sooner.decoding.tree import Tree
from sooner.methods.aligned.method import follow_threshold
from sooner.methods.rules import follow_choices
from sooner.methods.sd_tree import reject_siblings
from sooner.methods.speculative import reject
from sooner.methods.tree_draft import STATIC_TREE, TreeShape
from sooner.models import adapt

from .factories import ROOM, Build, Step, StepFactory
from .operations import touched

BLOCKS = (1, 2, 4, 5, 8, 11, 16, 17, 26, 32, 33, 64, 65, 128)
"""Entries of the blocks that a step may be asked for."""

STOPS = (1, 2)
"""Ids that end a row."""


def attention_bytes(args: Any, kwargs: Any, result: Tensor) -> int:
    """Block attention reads the queries, and keys and values once."""
    query, keys, values, *_ = args
    return touched(query) + touched(keys) + touched(values) + touched(result)


DECLARED = {"sooner::block_attention": attention_bytes}

Parents = Callable[[int], list[int]]
"""Parent of each of so many nodes, -1 for the root."""


def chain(nodes: int) -> list[int]:
    """Each token behind the one before it."""
    return list(range(-1, nodes - 1))


def bush(nodes: int) -> list[int]:
    """The first nodes of the static tree, and a chain behind them where it has too few."""
    parents = TreeShape(STATIC_TREE).parents[:nodes]
    return parents + list(range(len(parents) - 1, nodes - 1))


def step_of(parents: Parents, rule: Rule, *, draws: bool = False, drawn: bool = False) -> Build:
    """How a step is set up that verifies drafts of one shape.

    Args:
        parents: the shape.
        rule: judges them.
        draws: the target draws its tokens.
        drawn: so does the draft, and says what from.
    """

    def build(model: Any, rows: int, length: int) -> Step:
        adapter = adapt(model)
        runner = ModelRunner(adapter, length + ROOM)
        config = adapter.text_config
        shape = (
            rows,
            config.num_key_value_heads,
            1,
            config.hidden_size // config.num_attention_heads,
        )
        for layer in runner.cache.slot_layers:
            states = torch.zeros(shape, dtype=model.dtype, device=model.device)
            layer.lazy_initialization(states, states)
        runner.resume([length] * rows, torch.full((rows,), length, device=model.device))
        runner.cache.lengths_on(model.device)
        noise = RowNoise.start(7, torch.arange(rows, device=model.device))
        state = RowState(noise, STOPS, ROOM)
        processing = Processing(do_sample=draws)
        attending = attending_to_blocks(config)

        def draft(entries: int) -> Tree:
            """A drafter makes it between steps."""
            nodes = entries - 1
            above = (
                torch.tensor([parents(nodes)] * rows, device=model.device).view(rows, nodes).long()
            )
            tokens = torch.zeros(rows, nodes, dtype=torch.long, device=model.device)
            sizes = torch.full((rows,), nodes, device=model.device)
            probs = None
            if drawn:
                vocab = adapter.vocab_size
                probs = torch.full((rows, entries, vocab), 1 / vocab, device=model.device)
            return Tree(tokens, above, sizes, probs, is_chain=parents(nodes) == chain(nodes))

        def run(tree: Tree) -> None:
            step(
                runner, tree, rule, processing, state,
                processing.scores,
            )  # fmt: skip

        drafts = {entries: draft(entries) for entries in BLOCKS}

        def once(_: int, entries: int) -> None:
            run(replace(drafts[entries]))  # a new draft: what a step finds out of it is not there

        attending.__enter__()
        once.attending = attending  # type: ignore[attr-defined]  # as long as the step is there
        return once

    return build


STATIC: dict[str, StepFactory] = {
    factory.method: factory
    for factory in (
        StepFactory("plain", 1, step_of(chain, follow_choices), DECLARED),
        StepFactory("prompt-lookup", 11, step_of(chain, follow_choices), DECLARED),
        StepFactory("speculative", 5, step_of(chain, reject, draws=True, drawn=True), DECLARED),
        StepFactory(
            "sd-tree", 26, step_of(bush, reject_siblings, draws=True, drawn=True), DECLARED
        ),
        StepFactory("eagle", 33, step_of(bush, follow_choices), DECLARED),
        StepFactory("jacobi", 17, step_of(chain, follow_choices), DECLARED),
        StepFactory("hsd", 65, step_of(bush, follow_choices), DECLARED),
        StepFactory("hsd-relaxed", 65, step_of(bush, follow_threshold(0.75)), DECLARED),
    )
}
"""By method."""
