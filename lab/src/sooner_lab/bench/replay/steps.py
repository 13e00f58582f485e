"""What the forwards cost that theory is made of, of the very decoders that decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

import torch

from sooner.engine.runner import ModelRunner
from sooner.engine.tree import Tree

from ...theory import Curve
from ..gpu.timing import DeviceClock, Timing
from .models import ReplayAdapter
from .trees import RankedTree

BLOCKS = (1, 2, 3, 5, 9, 11, 17, 33)
"""Entries of the target's chains; between them a forward's time is interpolated."""
PLAIN = "target 1"
WIDTHS = (1, 2, 4)
"""Entries of the draft's forwards: a step's, and the levels of a tree."""


@dataclass(frozen=True)
class ForwardTimes:
    """Median seconds of forwards over some rows, in the middle of the text.

    Attributes:
        target: by entries of a chain.
        draft: by entries.
        trees: of the target over a whole tree, by the arm that drafts it.
        head_level: of a level of the tree of `eagle`'s head, where runs had one.
    """

    target: Curve
    draft: Curve
    trees: Mapping[str, float]
    head_level: float | None = None

    @classmethod
    def of(cls, seconds: Mapping[str, float], head_level: float | None = None) -> Self:
        """From the names that `forward_times` gives."""
        kinds: dict[str, dict[str, float]] = {"target": {}, "draft": {}, "tree": {}}
        for name, each in seconds.items():
            kind, what = name.split()
            kinds[kind][what] = each
        target, draft = (
            Curve.of({int(size): each for size, each in kinds[kind].items()})
            for kind in ("target", "draft")
        )
        return cls(target, draft, kinds["tree"], head_level)

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
    target: ReplayAdapter,
    draft: ReplayAdapter,
    ids: torch.Tensor,
    offset: int,
    trees: Mapping[str, RankedTree],
    repeats: int,
) -> dict[str, dict[str, Any]]:
    """Time every forward in turns, so that a drift of the machine hits all alike.

    Args:
        ids: prompts, `[rows, width]`.
        offset: tokens behind the prompt that are in the cache, too.
        trees: shapes by arm.

    Returns:
        `seconds`, `interval` and `samples` of each forward: `target N`, `draft N`, `tree ARM`.
    """
    largest = max(*BLOCKS, *(1 + item.nodes for item in trees.values()))
    verifying = _Forwards(target, ids, offset, largest)
    drafting = _Forwards(draft, ids, offset, max(WIDTHS))
    arms = {f"target {size}": verifying.chain(size) for size in BLOCKS}
    arms |= {f"draft {size}": drafting.chain(size) for size in WIDTHS}
    arms |= {f"tree {name}": verifying.tree(shape) for name, shape in trees.items()}
    timed = DeviceClock(target.device).interleaved(arms, repeats, warm_ups=2)
    results = {}
    for name, item in timed.items():
        if not isinstance(item, Timing):
            raise RuntimeError(f"forward '{name}' failed: {item}")
        results[name] = item.as_dict()
    return results


class _Forwards:
    """Forwards behind a prompt and some tokens; nothing is committed."""

    def __init__(
        self, adapter: ReplayAdapter, ids: torch.Tensor, offset: int, maximum: int
    ) -> None:
        self.ids = ids
        self.runner = ModelRunner(adapter, ids.shape[1] + offset + maximum)
        with torch.inference_mode():
            self.runner.prefill(adapter.embed_prompt({"input_ids": ids}))
            self.runner.forward_chain(ids[:, :offset])
        self.lengths = [ids.shape[1] + offset] * len(ids)
        self.runner.rewind(self.lengths)

    def chain(self, entries: int) -> Any:
        """A forward over a chain of `entries` tokens of each row."""
        tokens = self.ids[:, :entries].clone()
        return lambda: self._run(lambda: self.runner.forward_chain(tokens))

    def tree(self, shape: RankedTree) -> Any:
        """A forward over a tree of this shape, found anew as a round does."""
        tokens = self.ids[:, 1 : 1 + shape.nodes].clone()
        parents = torch.tensor(shape.parents, device=tokens.device).expand(tokens.shape)
        roots, sizes = self.ids[:, 0].clone(), [shape.nodes] * len(self.ids)
        return lambda: self._run(
            lambda: self.runner.forward_tree(roots, Tree.of(tokens, parents, sizes))
        )

    @torch.inference_mode()
    def _run(self, forward: Any) -> None:
        forward()
        self.runner.rewind(self.lengths)
