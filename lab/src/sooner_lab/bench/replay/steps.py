"""What the forwards cost that theory is made of, of the very decoders that decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Self

import torch

from sooner.engine.runner import ModelRunner

from ...theory import Curve
from ..gpu.timing import DeviceClock, Run
from .models import ReplayAdapter

BLOCKS = (1, 2, 3, 5, 9, 11, 17, 33)
"""Entries of the target's chains; between them a forward's time is interpolated."""
PLAIN = "target 1"
WIDTHS = (1, 2, 4)
"""Entries of the draft's forwards."""


@dataclass(frozen=True)
class ForwardTimes:
    """Median seconds of forwards over some rows, in the middle of the text, by entries of a chain.

    Attributes:
        target, draft: of each.
    """

    target: Curve
    draft: Curve

    @classmethod
    def of(cls, seconds: Mapping[str, float]) -> Self:
        """Make them of the names that `forward_times` gives."""
        kinds: dict[str, dict[int, float]] = {"target": {}, "draft": {}}
        for name, each in seconds.items():
            kind, size = name.split()
            kinds[kind][int(size)] = each
        return cls(Curve.of(kinds["target"]), Curve.of(kinds["draft"]))

    @property
    def plain(self) -> float:
        return self.target(1)


def pooled(times: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, float]:
    """Seconds by forward, from several results of `forward_times` over as many rows.

    Forwards of one result took turns, so how they compare is known better than how long they take:
    medians are of multiples of a plain step.
    """
    plain = [entry[PLAIN]["seconds"] for entry in times]
    over = {
        name: median(
            entry[name]["seconds"] / base for entry, base in zip(times, plain, strict=True)
        )
        for name in times[0]
    }
    return {name: ratio * median(plain) for name, ratio in over.items()}


def forward_times(
    target: ReplayAdapter, draft: ReplayAdapter, ids: torch.Tensor, offset: int, repeats: int
) -> dict[str, dict[str, Any]]:
    """Time every forward in turns, so that a drift of the machine hits all alike.

    Args:
        ids: prompts, `[rows, width]`.
        offset: tokens behind the prompt that are in the cache, too.

    Returns:
        `seconds`, `interval` and `samples` of each forward: `target N`, `draft N`.
    """
    arms = {f"target {size}": run for size, run in _chains(target, ids, offset, BLOCKS)}
    arms |= {f"draft {size}": run for size, run in _chains(draft, ids, offset, WIDTHS)}
    timed = DeviceClock(target.device).interleaved(arms, repeats, warm_ups=2)
    for name, figures in timed.items():
        if "missing" in figures:
            raise RuntimeError(f"forward '{name}' failed: {figures['missing']}")
    return timed


def _chains(
    adapter: ReplayAdapter, ids: torch.Tensor, offset: int, sizes: Sequence[int]
) -> Iterator[tuple[int, Run]]:
    """Yield forwards over chains behind a prompt and some tokens; nothing is committed."""
    lengths = [ids.shape[1] + offset] * len(ids)
    runner = ModelRunner(adapter, lengths[0] + max(sizes))
    with torch.inference_mode():
        runner.prefill(adapter.embed_prompt({"input_ids": ids}))
        runner.forward_chain(ids[:, :offset])
    runner.rewind(lengths)

    @torch.inference_mode()
    def run(tokens: torch.Tensor) -> None:
        runner.forward_chain(tokens)
        runner.rewind(lengths)

    for size in sizes:
        yield size, partial(run, ids[:, :size].clone())
