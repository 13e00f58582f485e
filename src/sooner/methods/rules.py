"""Rules that let the target choose: a draft is kept as far as it is what the target says."""

from __future__ import annotations

import torch
from torch import Tensor

from ..decoding.acceptance import Verdict, follow
from ..decoding.loop import Rule
from ..decoding.noise import first_to_come, waiting
from ..decoding.sampling import Processing
from ..decoding.tree import Tree
from .context import Context


def follow_choices(
    tree: Tree, scores: Tensor, processing: Processing, generator: torch.Generator | None
) -> Verdict:
    """Exact for every draft that does not depend on the target's draws of this round."""
    return follow(tree, processing.choose(scores, generator))


def follow_shared_noise(context: Context) -> Rule:
    """A rule that draws with the noise of the place: `argmax(log p + g)` decides every token.

    What is said is then a function of the seed and the model alone. Whatever drafted, and however
    much of it, each token is the one that plain decoding draws with the same noise, so sampled runs
    can be compared token by token, as greedy ones are, and as for those ties may part them in bf16.
    """
    rows = context.rows

    def rule(
        tree: Tree, scores: Tensor, processing: Processing, generator: torch.Generator | None
    ) -> Verdict:
        p = processing.probabilities(scores)  # [rows, 1 + nodes, vocab]
        said = [len(rows.said(row)) for row in range(len(rows.active))]
        places = torch.tensor(said, device=p.device)[:, None] + tree.depths()
        numbers = torch.tensor(rows.active, device=p.device)
        waits = waiting(context.noise_seed, numbers, places, p.shape[-1])
        return follow(tree, first_to_come(p, waits))

    return rule
