"""The runs whose counts and sampled ids are frozen, in fp32: each method once greedy, once sampled.

That greedy ids are those of HF is for `method_matrix` to prove; what was drafted and accepted on
the way, and what a seed draws, is not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import method_matrix as matrix
import sooner
import tiny
from sooner.engine.stats.run import Stats

SEED = 3
TIMED = (
    "noisy-auto", "eagle-auto", "hsd-auto", "ddtree-auto", "eagle3-auto", "parallel",
    "parallel-paper", "prompt-lookup-auto", "sd-tree-auto",
)  # fmt: skip
"""Methods whose drafts are as long as the clock says, so that nothing of them is frozen."""

DRAWN: tuple[dict[str, Any], ...] = (
    {"do_sample": True},
    {"do_sample": True, "temperature": 0.8, "top_k": 24, "top_p": 0.95},
    {"do_sample": True, "repetition_penalty": 1.2},
)
Ids = list[list[int]]


@dataclass(frozen=True)
class TextRun:
    """One call of `sooner.generate` or of `generate` with `custom_generate`.

    Attributes:
        entry: `session`, `custom_generate`.
        new: limit on new tokens.
        ends: whether a token that appears half-way is the end of sequence.
        turn: which of `DRAWN` it is decoded with.
    """

    family: str
    method: str
    kind: str
    rows: int
    entry: str
    new: int
    ends: bool
    turn: int = 0
    is_greedy: bool = True

    def __str__(self) -> str:
        parts = (self.family, self.method, self.kind, f"b{self.rows}", self.entry, f"n{self.new}")
        more = ("eos",) if self.ends else ()
        return "-".join((*parts, *more, *(() if self.is_greedy else ("sampled",))))

    def end(self) -> int | None:
        """The end of sequence to freeze; HF's greedy ids of this machine say it."""
        return matrix.middle_token(self.family, self.kind, self.rows) if self.ends else None

    def options(self, end: int | None) -> dict[str, Any]:
        limits = {"max_new_tokens": self.new, "eos_token_id": end}
        if self.is_greedy:
            return {**limits, "do_sample": False}
        return {**limits, **DRAWN[self.turn % len(DRAWN)]}

    def decode(self, end: int | None) -> tuple[Ids, Stats]:
        """New tokens of each row, and what the run counted."""
        model, inputs = tiny.model(self.family), tiny.inputs(self.family, self.kind, self.rows)
        method = matrix.METHODS[self.method](self.family)
        options = self.options(end)
        if self.entry == "session":
            result = sooner.generate(model, inputs, method, seed=SEED, **options)
            return result.tokens, result.stats
        output = model.generate(
            **inputs, **options, custom_generate=method, return_dict_in_generate=True
        )
        new = output.sequences[:, inputs["input_ids"].shape[1] :].tolist()
        return [cut(row, end) for row in new], output.stats

    def of_hf(self, end: int | None) -> Ids:
        """What HF's own `generate` says here, each row up to its end."""
        torch.manual_seed(SEED)
        inputs = tiny.inputs(self.family, self.kind, self.rows)
        output_ids = tiny.model(self.family).generate(**inputs, **self.options(end))
        return [cut(row, end) for row in output_ids[:, inputs["input_ids"].shape[1] :].tolist()]


@functools.cache
def of_draft(family: str) -> Ids:
    """What HF's `generate` makes of the noisy copy that most drafts of a family come from."""
    inputs = tiny.inputs(family, "text", 3)
    options = {"max_new_tokens": matrix.LONG, "eos_token_id": None, "do_sample": False}
    return tiny.noisy(family).generate(**inputs, **options).tolist()


def cut(row: list[int], end: int | None) -> list[int]:
    """A row up to its end of sequence, padding left out."""
    return row[: row.index(end) + 1] if end is not None and end in row else row


def cell(family: int, method: int) -> dict[str, Any]:
    """Kind of prompt, batch and entry of a method with a family, by their numbers."""
    kinds, turn = tiny.kinds(tiny.FAMILIES[family]), family + method
    return {
        "family": tiny.FAMILIES[family],
        "method": tuple(matrix.METHODS)[method],
        "kind": kinds[(turn + family) % len(kinds)],
        "rows": matrix.BATCHES[turn % len(matrix.BATCHES)],
        "entry": ("session", "custom_generate")[turn % 2 ^ (family // 2) % 2],
        "ends": turn % 3 != 0,
    }


def greedy() -> Iterator[TextRun]:
    """Runs whose counts no change of the engine may touch."""
    for number, method in enumerate(matrix.METHODS):
        if method not in TIMED:
            yield TextRun(**cell(number % len(tiny.FAMILIES), number), new=matrix.LONG)


def sampled() -> Iterator[TextRun]:
    """Runs of one seed: other random numbers give other ids, and are frozen anew."""
    for number, method in enumerate(matrix.METHODS):
        if method not in TIMED:
            family = (number + 3) % len(tiny.FAMILIES)
            run = {**cell(family, number), "entry": "session"}
            yield TextRun(**run, new=13, turn=29 * family + number, is_greedy=False)


PARTS = {"greedy": greedy, "sampled": sampled}


def counts(stats: Stats) -> list[Any]:
    """Target forwards, draft tokens, and accepted tokens of a step -> row steps."""
    histogram = sorted(stats.acceptance_histogram.items())
    return [stats.nfe, stats.num_draft_tokens, [list(pair) for pair in histogram]]
