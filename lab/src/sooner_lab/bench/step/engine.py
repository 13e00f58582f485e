"""The engine's own step, by the draft that it verifies: chains and trees, followed or rejected.

A step is `sooner.engine.step.step`: forward by block attention, verify, stop, commit. What a
method brings to it is the shape of its drafts and its rule, so methods that share both share one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sooner.engine.attention.context import attending_to_blocks
from sooner.engine.graphs.steps import StepGraphs
from sooner.engine.noise import RowNoise
from sooner.engine.runner import ModelRunner
from sooner.engine.sampling import Processing
from sooner.engine.step import RowState, Rule, step
from sooner.engine.tree import Tree
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


class StaticSteps:
    """The engine's steps behind a prompt of zeros.

    Args:
        model: a decoder, on whatever device.
        rows: most rows that a step has.
        length: tokens of the prompt.
        parents: shape of the drafts.
        rule: verifies them.
        draws: the target draws its tokens.
        drawn: so does the draft, and says what from.
        graphs: launch the steps as graphs, or padded.
    """

    def __init__(
        self,
        model: Any,
        rows: int,
        length: int,
        parents: Parents,
        rule: Rule,
        *,
        draws: bool = False,
        drawn: bool = False,
        graphs: StepGraphs | None = None,
    ) -> None:
        self.model, self.rows, self.length = model, rows, length
        self.parents, self.rule, self.drawn = parents, rule, drawn
        self.take = step if graphs is None else graphs.step
        self.adapter = adapt(model)
        self.runner = ModelRunner(self.adapter, length + ROOM)
        config = self.adapter.text_config
        width = config.hidden_size // config.num_attention_heads
        shape = (rows, config.num_key_value_heads, 1, width)
        for layer in self.runner.cache.slot_layers:
            states = torch.zeros(shape, dtype=model.dtype, device=model.device)
            layer.lazy_initialization(states, states)
        self.runner.resume([length] * rows, torch.full((rows,), length, device=model.device))
        self.runner.cache.lengths_on(model.device)
        noise = RowNoise.start(7, torch.arange(rows, device=model.device))
        self.state = RowState(noise, STOPS, ROOM)
        self.processing = Processing(do_sample=draws)
        self.drafts = {entries: self.draft(entries) for entries in BLOCKS}

    def draft(self, entries: int) -> Tree:
        """A drafter makes it between steps."""
        rows, nodes, device = self.rows, entries - 1, self.model.device
        above = torch.tensor([self.parents(nodes)] * rows, device=device).view(rows, nodes).long()
        tokens = torch.zeros(rows, nodes, dtype=torch.long, device=device)
        sizes = torch.full((rows,), nodes, device=device)
        probs = None
        if self.drawn:
            vocab = self.adapter.vocab_size
            probs = torch.full((rows, entries, vocab), 1 / vocab, device=device)
        return Tree(tokens, above, sizes, probs, is_chain=self.parents(nodes) == chain(nodes))

    def run(self, entries: int) -> None:
        """A step of the largest batch."""
        tree = replace(self.drafts[entries])  # a new draft: what a step finds out is not there
        self.take(self.runner, tree, self.rule, self.processing, self.state, self.processing.scores)

    def __call__(self, rows: int, entries: int) -> None:
        """A step of the first `rows` rows behind the prompt; other rows leave for good."""
        if rows < self.rows:
            stay = range(rows)
            self.runner.select_rows([*stay])
            self.state.select_rows(torch.tensor([*stay], device=self.model.device))
            self.rows, self.drafts = rows, {}
        self.runner.rewind([self.length] * rows)
        if entries not in self.drafts:
            self.drafts[entries] = self.draft(entries)
        self.run(entries)


def step_of(
    parents: Parents,
    rule: Rule,
    *,
    draws: bool = False,
    drawn: bool = False,
    is_padded: bool = False,
) -> Build:
    """How a step is set up that verifies drafts of one shape.

    Args:
        parents, rule, draws, drawn: see `StaticSteps`.
        is_padded: to a bucket.
    """

    def build(model: Any, rows: int, length: int) -> Step:
        graphs = StepGraphs(None, max(BLOCKS)) if is_padded else None
        steps = StaticSteps(
            model, rows, length, parents, rule, draws=draws, drawn=drawn, graphs=graphs
        )
        attending = attending_to_blocks(steps.adapter.text_config)
        attending.__enter__()

        def once(_: int, entries: int) -> None:
            steps.run(entries)

        once.attending = attending  # type: ignore[attr-defined]  # as long as the step is there
        return once

    return build


DRAWN = {"draws": True, "drawn": True}

SHAPES: dict[str, tuple[int, Parents, Rule, dict[str, bool]]] = {
    "plain": (1, chain, follow_choices, {}),
    "prompt-lookup": (11, chain, follow_choices, {}),
    "speculative": (5, chain, reject, DRAWN),
    "sd-tree": (26, bush, reject_siblings, DRAWN),
    "eagle": (33, bush, follow_choices, {}),
    "jacobi": (17, chain, follow_choices, {}),
    "hsd": (65, bush, follow_choices, {}),
    "hsd-relaxed": (65, bush, follow_threshold(0.75), {}),
}
"""Entries, shape and rule of each method, and what is drawn."""


def _factories(**options: bool) -> dict[str, StepFactory]:
    return {
        name: StepFactory(name, entries, step_of(parents, rule, **drawn, **options), DECLARED)
        for name, (entries, parents, rule, drawn) in SHAPES.items()
    }


STATIC = _factories()
"""By method."""

PADDED = _factories(is_padded=True)
"""The factories in buckets, as graphs are captured."""
