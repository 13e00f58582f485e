"""DFlash and DDTree: one forward of a drafter gives a block, taken as a chain or as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ...checks import option
from ...engine.acceptance import follow_choices
from ...engine.interface import Drafter
from ...engine.loop import Rule
from ..context import Context
from ..speculative import reject
from ..target_layers import read_layers
from ..trained import TrainedMethod
from ..tree_size import NODES, MeasuredSize, Size
from .drafter import BlockDrafter


@dataclass(frozen=True)
class BlockMethod(TrainedMethod):
    """What both methods share: a drafter of blocks, any size of which takes one forward."""

    drafter: Any
    draws: ClassVar[bool] = False
    """Sampled drafts are drawn, for rejection sampling."""

    def measured(self) -> MeasuredSize:
        return MeasuredSize(self.largest(), forwards=1)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        model, sizing = self.placed(context)
        read_layers(context, model.config.layers)
        drafter = BlockDrafter(model, context, sizing, self.draws)
        return drafter, reject if self.draws else follow_choices


@dataclass(frozen=True)
class DFlash(BlockMethod):
    """Runs speculative decoding with a block-diffusion drafter (DFlash, Chen et al. 2026).

    One forward of a small bidirectional drafter, which reads the target's states of several layers,
    fills a block of masked tokens; one forward of the target verifies the chain. Exact: under
    greedy decoding the target's choices are followed; under sampling each place is drawn from its
    own marginal, and rejection sampling needs to know just what a token was drawn from.

    Args:
        drafter: a `DFlashModel`, or its folder or name, in z-lab's, transformers' or speculators'
            layout. It stays as it is: a target on another device or in another dtype is drafted for
            by a copy.
        num_draft_tokens: of a round, at most those of a block, or `"auto"` for the number that
            measurably pays, which may be none.

    Raises:
        SoonerError: an option out of range, or a folder without a drafter; in a run, a target that
            it was not trained for.
        UnsupportedError: a drafter whose tokens depend on predecessors inside a block (DFlash2,
            Domino, DSpark); a run with guidance.
    """

    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    name: ClassVar[str] = "dflash"
    draws: ClassVar[bool] = True

    def largest(self) -> Size:
        limit, requested = self.drafter.config.drafts, self.num_draft_tokens
        length = limit if requested == "auto" else min(int(requested), limit)
        return Size(length, length)

    def measured(self) -> MeasuredSize:
        largest = self.largest()
        lengths = sorted({n for n in NODES if n < largest.nodes} | {largest.nodes})
        return MeasuredSize(largest, [Size(n, n) for n in lengths], forwards=1)


@dataclass(frozen=True)
class DDTree(BlockMethod):
    """Runs speculative decoding with trees of a DFlash drafter's marginals (DDTree, Ringel et
    al. 2026).

    The same drafter and the same one forward as `DFlash`; of its marginals the `nodes` most
    probable prefixes are verified as a tree. Exact, greedy and sampling, as the trees hold likely
    tokens, not draws: the target's own choice is followed while it is there.

    Args:
        drafter: as of `DFlash`.
        nodes: most nodes of a tree, or `"auto"` for the number that measurably pays, which may be
            none. What `"auto"` measures is kept from call to call of this object.
        max_nodes: upper limit for `"auto"`.

    Raises:
        SoonerError, UnsupportedError: as of `DFlash`.
    """

    nodes: int | Literal["auto"] = option("auto", 1)
    max_nodes: int = option(48, 1)
    name: ClassVar[str] = "ddtree"
    size: ClassVar[str] = "nodes"

    def largest(self) -> Size:
        nodes = self.max_nodes if self.nodes == "auto" else int(self.nodes)
        return Size(nodes, min(nodes, self.drafter.config.drafts))
