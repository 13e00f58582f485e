"""DFlash and DDTree: one forward of a drafter gives a block, taken as a chain or as a tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from ...engine.acceptance import follow_choices
from ...engine.interface import Drafter
from ...engine.loop import Rule
from ..checks import positive, positive_or_auto
from ..context import Context
from ..settings import MethodSettings
from ..speculative import reject
from ..target_layers import read_layers
from ..trained_method import TrainedMethod
from ..tree_size import NODES, MeasuredSize, Size, TreeSize
from .drafter import BlockDrafter


@dataclass(frozen=True)
class BlockMethod(TrainedMethod):
    """What both methods share: a drafter of blocks."""

    drafter: Any

    def slot_bytes(self) -> int:
        return int(self.drafter.slot_bytes)

    def _largest(self) -> Size:
        raise NotImplementedError

    def largest_block(self) -> int:
        return 1 + self._largest().nodes

    def _measured(self, is_chain: bool) -> MeasuredSize:
        """Returns what chooses sizes of which one forward drafts any."""
        largest, chains = self._largest(), None
        if is_chain:
            lengths = sorted({n for n in NODES if n < largest.nodes} | {largest.nodes})
            chains = [Size(n, n) for n in lengths]
        return MeasuredSize(largest, chains, forwards=1)

    def _drafter(self, context: Context, is_chain: bool, is_measured: bool) -> BlockDrafter:
        """The drafter of one run; from here on its target tells the states of its layers.

        Raises:
            SoonerError: a target that the drafter was not trained for.
            UnsupportedError: guidance.
        """
        placed = self.placed(context)
        sizing = TreeSize(self._largest())
        if is_measured:
            sizing = placed.sizing(lambda: self._measured(is_chain), context)
        read_layers(context, placed.drafter.config.layers)
        return BlockDrafter(placed.drafter, context, sizing, draws=is_chain)


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

    num_draft_tokens: int | Literal["auto"] = "auto"
    name: ClassVar[str] = "dflash"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive_or_auto(self, "num_draft_tokens")

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        return cls(settings.head, num_draft_tokens=settings.num_draft_tokens)

    def _largest(self) -> Size:
        limit, requested = self.drafter.config.drafts, self.num_draft_tokens
        length = limit if requested == "auto" else min(int(requested), limit)
        return Size(length, length)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        return self._drafter(context, True, self.num_draft_tokens == "auto"), reject


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

    nodes: int | Literal["auto"] = "auto"
    max_nodes: int = 48
    name: ClassVar[str] = "ddtree"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "max_nodes")
        positive_or_auto(self, "nodes")

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        return cls(settings.head, nodes=settings.num_draft_tokens)

    def _largest(self) -> Size:
        nodes = self.max_nodes if self.nodes == "auto" else int(self.nodes)
        return Size(nodes, min(nodes, self.drafter.config.drafts))

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        return self._drafter(context, False, self.nodes == "auto"), follow_choices
