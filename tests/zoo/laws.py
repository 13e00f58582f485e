"""What is exact: ids of every method are those of HF's own incremental `generate`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList

import sooner
from sooner.engine.noise import Purpose, RowNoise, draw_seed
from sooner.engine.sampling import pick

from . import words
from .species import Species, draft_of, model_of

NEW, ROWS, SEED = 24, 3, 11

METHODS: dict[str, Callable[[Species], sooner.Method]] = {
    "plain": lambda species: sooner.Autoregressive(),
    "prompt-lookup": lambda species: sooner.PromptLookup(num_draft_tokens=4, max_ngram=1),
    "chain": lambda species: sooner.Speculative(draft_of(species), num_draft_tokens=4),
    "itself": lambda species: sooner.Speculative(model_of(species), num_draft_tokens=9),
    "tree": lambda species: sooner.SDTree(draft_of(species)),
}
SAMPLED = ("plain", "prompt-lookup", "top-tree")
"""Methods whose drafts are followed by the target's own draws, which a seed decides."""


def methods_of(species: Species, *names: str) -> list[str]:
    """Returns the methods, all by default, that a species' layers can take."""
    return [name for name in names or METHODS if species.trees or "tree" not in name]


class Drawn(LogitsProcessor):
    """Makes `generate` say what a seed draws from its scores."""

    def __init__(self, rows: Tensor, seed: int, width: int) -> None:
        seed = draw_seed(torch.Generator().manual_seed(seed))
        self.noise = RowNoise.start(seed, rows)
        self.width = width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        generated = input_ids.shape[1] - self.width
        noise = replace(self.noise, places=self.noise.places + generated)
        token = pick(scores.softmax(-1), noise.uniforms(Purpose.TOKEN, 0)[:, 0])
        forced = torch.full_like(scores, -torch.inf)
        return forced.scatter_(1, token[:, None], 0)


@functools.cache
def reference(species: Species, kind: str, is_sampled: bool = False) -> list[list[int]]:
    """New tokens of each row by HF's own `generate`, one at a time."""
    inputs = species.inputs(model_of(species), kind, ROWS, 0)
    if not species.alone:
        return output(species, inputs, is_sampled)
    lines = [words.row_of(inputs, kind, row) for row in range(ROWS)]
    return [output(species, line, is_sampled, row)[0] for row, line in enumerate(lines)]


def output(
    species: Species, inputs: dict[str, Any], is_sampled: bool = False, first: int = 0
) -> list[list[int]]:
    """Returns the output for any inputs, whose rows are numbered from `first` on."""
    rows, width = inputs["input_ids"].shape
    numbers = torch.arange(first, first + rows)
    drawn = LogitsProcessorList([Drawn(numbers, SEED, width)] if is_sampled else [])
    model = model_of(species)
    # Janus' own drops the processors that it is handed before it hands the rest on to this one.
    owner = GenerationMixin if species.model_type == "janus" else type(model)
    made = owner.generate(
        model, **inputs, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0, do_sample=False,
        logits_processor=drawn, use_cache=True,
    )  # fmt: skip
    return made[:, width:].tolist()


def decoded(species: Species, name: str, kind: str, **options: Any) -> tuple[list[list[int]], Any]:
    """New tokens of each row by a method, greedily, and what the run counted."""
    inputs = species.inputs(model_of(species), kind, ROWS, 0)
    made = sooner.generate(
        model_of(species), inputs, METHODS[name](species), max_new_tokens=NEW, eos_token_id=None,
        pad_token_id=0, do_sample=False, **options,
    )  # fmt: skip
    return made.tokens, made.stats


def drawn(species: Species, name: str, kind: str) -> list[list[int]]:
    """New tokens of each row by a method, drawn by `SEED`."""
    method = (
        sooner.SDTree(draft_of(species), siblings="top")
        if name == "top-tree"
        else METHODS[name](species)
    )
    inputs = species.inputs(model_of(species), kind, ROWS, 0)
    made = sooner.generate(
        model_of(species), inputs, method, max_new_tokens=NEW, eos_token_id=None, pad_token_id=0,
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        seed=SEED,
    )  # fmt: skip
    return made.tokens
