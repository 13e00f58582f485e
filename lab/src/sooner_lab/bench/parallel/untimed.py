"""Acceptance of drafts on the texts of clips, untimed.

A clip is prefilled once for criteria that rank by states and once for those that rank by attention;
every point of the sweep then chooses by these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sooner.generation import generate
from sooner.methods import ParallelVLM
from sooner.methods.context import Context
from sooner.methods.parallel.drafter import Rank
from sooner.methods.pruning import BY_ATTENTION, Criterion, rank

from .agreement import read_name
from .contenders import OURS, ParallelContender
from .records import Record
from .running import Runner

Heard = tuple[Tensor, Tensor, Tensor, Tensor]
"""Arguments of `pruning.rank`: at the first layer, at layer L, which tokens are visual, frames."""


@dataclass(frozen=True)
class HeardVLM(ParallelVLM):
    """The method itself; `heard` keeps what it ranked by."""

    heard: list[Heard] = field(default_factory=list, repr=False, compare=False)

    def _rank(self, context: Context) -> Rank | None:
        chosen = super()._rank(context)
        assert chosen is not None, "without pruning nothing is ranked"

        def overheard(first: Tensor, last: Tensor, visual: Tensor, frames: Tensor) -> Tensor:
            self.heard.append((first.clone(), last.clone(), visual.clone(), frames.clone()))
            return chosen(first, last, visual, frames)

        return overheard


def read(runner: Runner, arms: Sequence[ParallelContender], index: int) -> list[Record]:
    """What the drafts of some arms would say of a clip's text."""
    clip = runner.bench.clip(OURS, index)
    tokens, _ = runner.reference(index)
    heard: dict[bool, Heard] = {}
    records = []
    for one in arms:
        kept = None
        if one.alpha:
            by_attention = one.criterion in BY_ATTENTION
            if by_attention not in heard:
                draft = runner.bench.pair.draft
                assert draft is not None
                heard[by_attention] = listen(
                    runner.model, draft.model, clip.inputs, one.criterion, clip.draft_inputs
                )
            generator = torch.Generator().manual_seed(runner.settings.seed + index)
            kept = rank(one.criterion, one.alpha, *heard[by_attention], generator).tolist()
        found = runner.judged(one, clip, tokens, kept)
        records.append({"arm": read_name(one.name), "clip": index, "repeat": 0, **found})
    return records


def listen(
    model: Any,
    draft: Any,
    inputs: Mapping[str, Any],
    criterion: Criterion,
    draft_inputs: Mapping[str, Any] | None = None,
) -> Heard:
    """What a criterion ranks a prompt's visual tokens by; how many are pruned makes no difference.

    Args:
        model, draft: the pair's.
        inputs, draft_inputs: of one prompt; without the draft's own, the target's serve.
    """
    method = HeardVLM(
        draft, prune=0.5, criterion=criterion, placement="inline", draft_inputs=draft_inputs
    )
    # One token ends with the prefill; the second takes the drafter that listens to it.
    generate(model, inputs, method, max_new_tokens=2, do_sample=False)
    return method.heard[-1]
