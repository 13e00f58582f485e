"""Accuracy of needle tasks by length and depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from sooner.generation import Prefill, generate
from sooner.methods import Method

from .task import NeedleSample

Reply = Callable[[NeedleSample], str]
"""Answers a sample."""

FIELDS = ("name", "kind", "unit", "lengths", "depths", "right", "asked")


@dataclass
class ResultGrid:
    """How many samples were answered right, by length and depth.

    Attributes:
        name: of the arm, such as `dense`.
        kind: `v-niah` or `mm-niah`.
        unit: what lengths count.
        lengths, depths: the axes, ascending.
        right: samples answered right, int `[lengths, depths]`.
        asked: samples in all, int `[lengths, depths]`.
    """

    name: str
    kind: str
    unit: str
    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    right: np.ndarray = field(init=False)
    asked: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        shape = len(self.lengths), len(self.depths)
        self.right, self.asked = np.zeros(shape, int), np.zeros(shape, int)

    def add(self, length: int, depth: float, right: bool) -> None:
        """Count a sample."""
        place = self.lengths.index(length), self.depths.index(depth)
        self.asked[place] += 1
        self.right[place] += right

    @property
    def accuracy(self) -> np.ndarray:
        """Share of right answers, `[lengths, depths]`; NaN where nothing was asked."""
        return np.where(self.asked > 0, self.right / np.maximum(self.asked, 1), np.nan)

    def as_dict(self) -> dict[str, Any]:
        """As it goes into a result file."""
        data = {name: getattr(self, name) for name in FIELDS}
        return {**data, "right": self.right.tolist(), "asked": self.asked.tolist()}


def run(
    task: Any,
    reply: Reply,
    lengths: Sequence[int],
    depths: Sequence[float],
    seeds: Sequence[int] = (0,),
    *,
    name: str = "dense",
) -> ResultGrid:
    """Ask every length, depth and seed.

    Args:
        task: a `NeedleTask`, or another that has `kind`, `unit` and `sample`.
        reply: answers a sample, such as `reader(model, processor)`.
        name: of the arm.
    """
    grid = ResultGrid(name, task.kind, task.unit, tuple(lengths), tuple(depths))
    for length, depth, seed in product(lengths, depths, seeds):
        sample = task.sample(length, depth, seed)
        grid.add(length, depth, sample.score(reply(sample)))
    return grid


def reader(
    model: Any,
    processor: Any,
    *,
    method: Method | None = None,
    prefill: Prefill | None = None,
    max_new_tokens: int = 16,
) -> Reply:
    """Answers samples with a model, greedily.

    Args:
        method: how to decode; plain by default.
        prefill: a sparse prefill, a pruner, or a compressor.
    """

    def reply(sample: NeedleSample) -> str:
        made = generate(
            model,
            sample.inputs(processor, model),
            method,
            prefill=prefill,
            max_new_tokens=max_new_tokens,
            do_sample=False,
        )
        decode = getattr(processor, "tokenizer", processor).decode
        return decode(made.tokens[0], skip_special_tokens=True).strip()

    return reply
