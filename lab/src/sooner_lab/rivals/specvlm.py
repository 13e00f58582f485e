"""SpecVLM: the draft's prompt pruned by the target's attention, then a static tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sooner.checks import option
from sooner.engine.interface import Drafter, Prompt
from sooner.engine.loop import Rule
from sooner.engine.rows import Rows
from sooner.engine.tree import Tree
from sooner.methods.context import Context
from sooner.methods.pruning import keep_count, match, uniform, views
from sooner.methods.sd_tree import SDTree, TreeDrafter

from .attention_tap import AttentionTap, TapDrafter


@dataclass(frozen=True)
class SpecVLM(SDTree):
    """Runs static-tree speculation with a draft pruned by its verifier (SpecVLM, Ji et al. 2025).

    While the target prefills, the attention that the question pays to each visual token is
    averaged over layers, heads and the question's tokens. Stage I keeps the smallest set of tokens
    that holds the share `focus` of it, as far as the budget goes; stage II spends the rest of the
    budget evenly over the other tokens. The draft prefills on what is kept, after the target.

    Args:
        prune: share of the visual tokens that the draft does without (alpha); 0 keeps all.
        focus: share of attention that stage I covers; 1 is plain top-k, 0 uniform.
        others: as for `SDTree`.

    Raises:
        SoonerError: a value out of range, or what `SDTree` raises.
    """

    prune: float = option(0.9, 0, 1)
    focus: float = option(0.4, 0, 1)
    name: ClassVar[str] = "specvlm"
    needs_whole_target: ClassVar[bool] = True
    needs_whole_prompt: ClassVar[bool] = True

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        tree, rule = super().build(context)
        assert isinstance(tree, TreeDrafter)
        return PrunedDrafter(tree, self), rule


class PrunedDrafter(TapDrafter, TreeDrafter):
    """A tree drafter that records the target's attention and prunes its own prompt.

    Args:
        tree: drafts the same trees behind the whole prompt.
        method: how much is pruned.

    Attributes:
        paid: attention to each token, summed over layers, `[rows, width]`; `None` before the
            prefill.
    """

    def __init__(self, tree: TreeDrafter, method: SpecVLM) -> None:
        super().__init__(
            tree.adapter, tree.inputs, tree.context, tree.shape, tree.sizing, tree.draws
        )
        self.method = method
        self.paid: Tensor | None = None

    def on_verify_start(self, pending: Tree, rows: Rows) -> None:
        if self.tap is None and self.method.prune > 0:
            every = range(self.context.target.layers)
            self.tap = AttentionTap(self.context, every, self._record)

    def _record(self, layer: int, scores: Tensor) -> None:
        paid = scores.mean(1)
        self.paid = paid if self.paid is None else self.paid + paid.to(self.paid.device)

    def prompt(self) -> Prompt:
        prompt = super().prompt()
        if self.tap is None:
            return prompt
        assert self.paid is not None
        context = self.context
        with context.stats.ranking():
            visual = self.tap.visual.to(self.paid.device)
            seen = views(context.target, context.inputs, context.copies)
            grids = views(self.adapter, self.inputs, context.copies)
            selected = []
            for paid, mask, *pair in zip(self.paid, visual, seen, grids, strict=True):
                indices = staged(paid[mask], self.method.prune, self.method.focus)
                selected.append(match(indices, *pair))
        return self.adapter.prune_prompt(prompt, selected)


def staged(scores: Tensor, ratio: float, focus: float) -> Tensor:
    """Returns indices that SpecVLM's two stages keep of one prompt, ascending.

    Args:
        scores: attention to each visual token, `[tokens]`.
        ratio: share that is pruned (alpha).
        focus: share of the attention that the first stage covers.
    """
    tokens = scores.shape[0]
    count = keep_count(tokens, ratio)
    if count == tokens:
        return torch.arange(tokens, device=scores.device)
    order = scores.argsort(descending=True)
    mass = scores[order].cumsum(0)
    first = min(int((mass < focus * mass[-1]).sum()) + (focus > 0), count)
    chosen = torch.zeros(tokens, dtype=torch.bool, device=scores.device)
    chosen[order[:first]] = True
    left = (~chosen).nonzero()[:, 0]
    chosen[left[uniform(len(left), count - first, scores.device)]] = True
    return chosen.nonzero()[:, 0]
