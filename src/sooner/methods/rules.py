"""Rules that let the target choose: a draft is kept as far as it is what the target says."""

from __future__ import annotations

from torch import Tensor

from ..engine.acceptance import VerifyResult, follow
from ..engine.noise import Purpose, RowNoise, first_to_come
from ..engine.sampling import Processing
from ..engine.step import pure
from ..engine.tree import Tree


@pure
def follow_choices(
    tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
) -> VerifyResult:
    """Exact for every draft that does not depend on the target's draws.

    A draw belongs to its row and place: whatever drafted, and however much of it, each token is the
    one that plain decoding draws under the same seed, so sampled runs can be compared token by
    token, as greedy ones are, and as for those rounding may part them.
    """
    return follow(tree, processing.choose(scores, tree, noise))


@pure
def follow_shared_noise(
    tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
) -> VerifyResult:
    """Verifies with Gumbel noise: `argmax(log p + g)` decides every token.

    A draft that was drawn with the noise `g` of its place tends to be that token. Where no row
    draws, the best one decides.
    """
    if not processing.do_sample:
        return follow_choices(tree, scores, processing, noise)
    p = processing.probabilities(scores)  # [rows, 1 + nodes, vocab]
    waits = noise.waiting(Purpose.GUMBEL, tree.depths(), p.shape[-1])
    return follow(tree, first_to_come(p, waits))
