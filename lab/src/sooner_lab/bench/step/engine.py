"""The engine's own step, by the draft that it verifies; HF's own, to be compared with; and models.

A step is `sooner.engine.loop.step`: forward by block attention, verify, stop, commit. What a
method brings to it is the shape of its drafts and its rule, so methods that share both share one.
The caller of a step turns gradients off: by `inference_mode`, or by `no_grad` where it is compiled,
since dynamo can't make views of inference tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen2Config, StaticCache

from sooner.engine.acceptance import Rule, follow_choices
from sooner.engine.attention.context import attending_to_blocks
from sooner.engine.graphs.steps import StepGraphs
from sooner.engine.loop import RowState, step
from sooner.engine.noise import RowNoise
from sooner.engine.runner import ModelRunner
from sooner.engine.sampling import Processing
from sooner.engine.tree import Tree
from sooner.methods.aligned.method import follow_threshold
from sooner.methods.sd_tree import STATIC_TREE, TreeShape, reject_siblings
from sooner.methods.speculative import reject
from sooner.models import adapt

from .operations import BytesOf, touched

Step = Callable[[int, int], None]
"""One step over `rows` rows and blocks of `entries` tokens: `step(rows, entries)`."""
Build = Callable[[Any, int, int], Step]
"""Sets a step up behind a prompt: `(model, rows, tokens of the prompt) -> step`."""
Parents = Callable[[int], list[int]]
"""Parent of each of so many nodes, -1 for the root."""

ROOM = 512
"""Slots behind the prompt."""
LARGEST = 128
"""Entries of the largest block."""
BLOCKS = (1, 2, 4, 5, 8, 11, 16, 17, 26, 32, 33, 64, 65, LARGEST)
"""Entries of the blocks that a step may be asked for."""
STOPS = (1, 2)
"""Ids that end a row."""

QWEN2_5_7B: dict[str, Any] = {
    "vocab_size": 152_064,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 131_072,
}
"""The shape of the text model of Qwen2.5-7B and Qwen2.5-VL-7B."""

TINY: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
}


def qwen2_5_7b(layers: int = 28) -> Any:
    """The text model in bf16; call it under `fake_cuda`, or it takes 15 GB.

    Args:
        layers: fewer for a quick look; bytes and operations are linear in them.
    """
    return _built(Qwen2Config(**{**QWEN2_5_7B, "num_hidden_layers": layers}), torch.bfloat16)


def tiny(layers: int = 4) -> Any:
    """A random model in fp32, with weights large enough to have opinions."""
    torch.manual_seed(0)
    model = _built(Qwen2Config(**{**TINY, "num_hidden_layers": layers}), torch.float32)
    for name, weights in model.named_parameters():
        if weights.ndim > 1:
            weights.data.normal_(0, 0.25 if "embed" in name else 0.12)
    return model


def _built(config: Qwen2Config, dtype: torch.dtype) -> Any:
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


@dataclass(frozen=True)
class StepFactory:
    """How one method's step is made.

    Attributes:
        method: its name.
        entries: tokens a row that a round forwards, the root included.
        build: sets a step up, with slots for some more rounds. Nothing is computed for the prompt:
            its keys and values are zeros.
        declared: bytes that operations of its own move (`operations.Operations`).
    """

    method: str
    entries: int
    build: Build
    declared: Mapping[str, BytesOf] = field(default_factory=dict)


def attention_bytes(args: Any, kwargs: Any, result: Tensor) -> int:
    """Return what block attention moves: the queries, and keys and values once."""
    query, keys, values, *_ = args
    return touched(query) + touched(keys) + touched(values) + touched(result)


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


def build_step(
    model: Any,
    rows: int,
    length: int,
    *,
    parents: Parents,
    rule: Rule,
    is_padded: bool,
    **draws: bool,
) -> Step:
    """Set a step up that verifies drafts of one shape.

    Args:
        model, rows, length, parents, rule, draws: see `StaticSteps`.
        is_padded: to a bucket.
    """
    graphs = StepGraphs(None, LARGEST) if is_padded else None
    steps = StaticSteps(model, rows, length, parents, rule, graphs=graphs, **draws)
    attending = attending_to_blocks(steps.adapter.text_config)
    attending.__enter__()

    def once(_: int, entries: int) -> None:
        steps.run(entries)

    once.attending = attending  # type: ignore[attr-defined]  # as long as the step is there
    return once


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


def factories(is_padded: bool = False) -> dict[str, StepFactory]:
    """Return the factories by method; in buckets, as graphs are captured, if `is_padded`."""
    made = {}
    for name, (entries, parents, rule, draws) in SHAPES.items():
        build = partial(build_step, parents=parents, rule=rule, is_padded=is_padded, **draws)
        made[name] = StepFactory(name, entries, build, {"sooner::block_attention": attention_bytes})
    return made


STATIC, PADDED = factories(), factories(is_padded=True)


def hf_static(model: Any, rows: int, length: int) -> Step:
    """Set up HF's step of `generate` with a static cache: forward and greedy choice."""
    config = model.config.get_text_config()
    cache: Any = StaticCache(config=model.config, max_cache_len=length + ROOM)
    cache.early_initialization(
        rows,
        config.num_key_value_heads,
        config.hidden_size // config.num_attention_heads,
        model.dtype,
        model.device,
    )
    for layer in cache.layers:
        layer.cumulative_length.fill_(length)
    tokens = torch.zeros(rows, LARGEST, dtype=torch.long, device=model.device)

    def step(rows: int, entries: int) -> None:
        output = model(input_ids=tokens[:rows, :entries], past_key_values=cache, use_cache=True)
        scores = output.logits.to(copy=True, dtype=torch.float32)  # [rows, entries, vocab]
        scores.argmax(-1)

    return step


HF = StepFactory("hf-static", 1, hf_static)
"""What users have without us."""
