"""EAGLE-2: a head on the target's own states drafts a tree that fits the moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ...checks import option
from ...engine.acceptance import follow_choices
from ...engine.interface import Drafter
from ...engine.loop import Rule
from ...errors import SoonerError
from ..context import Context
from ..target_layers import read_layers
from ..trained import TrainedMethod
from ..tree_size import Size
from .drafter import EagleDrafter


@dataclass(frozen=True)
class Eagle(TrainedMethod):
    """Runs speculative decoding with a trained head and dynamic trees (EAGLE-2, Li et al. 2024).

    The head reads the target's states and goes on from them; it was trained for this very target
    (by `sooner train draft`, published as EAGLE-3, or with the target as MTP), which stays as it
    is. Each round grows a tree of its most confident continuations, which one forward verifies.
    Exact, greedy and sampling, as the trees hold the head's best tokens, not draws: the target's
    own choice is followed while it is there.

    Args:
        head: a trained `EagleHead`, `Eagle3Head` or `MtpHead`, its folder or its name on the model
            hub. It stays as it is: a target on another device or in another dtype is drafted for by
            a copy there.
        nodes: most nodes of a tree, or `"auto"` for the number (and depth) that measurably pays,
            which may be none. What `"auto"` measures is kept from call to call of this object.
        depth: levels of a tree: most draft tokens that a round can accept.
        top_k: continuations of a node, and nodes that are continued on a level; 1 drafts chains. By
            default 8, and 1 for the MTP layer of a target whose layers keep a state.
        max_nodes: upper limit for `"auto"`.
        legal: token ids that may be drafted at all, such as a policy's actions; `None` for all.

    Raises:
        SoonerError: an option out of range, or a folder without a head; in a run, a target that
            the head was not trained for.
        UnsupportedError: in a run with guidance, for which no head is trained.
    """

    head: Any
    nodes: int | Literal["auto"] = option("auto", 1)
    depth: int = option(5, 1)
    top_k: int | None = option(None, 1)
    max_nodes: int = option(50, 1)
    legal: tuple[int, ...] | None = field(default=None, repr=False)
    name: ClassVar[str] = "eagle"
    trained: ClassVar[str] = "head"
    size: ClassVar[str] = "nodes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_k is None:
            object.__setattr__(self, "top_k", getattr(self.head, "default_top_k", 8))
        if self.legal is not None:
            ids = tuple(sorted({int(token) for token in self.legal}))
            if not ids or ids[0] < 0:
                raise SoonerError(
                    f"Eagle: legal is {list(ids)[:3]}; give the ids that may be drafted, 0 or more "
                    "each, or None for all"
                )
            object.__setattr__(self, "legal", ids)

    @property
    def drafts_chains(self) -> bool:
        return self.top_k == 1

    def largest(self) -> Size:
        return Size(self.max_nodes if self.nodes == "auto" else int(self.nodes), self.depth)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        head, sizing = self.placed(context)
        vocab = context.target.vocab_size
        if self.legal is not None and self.legal[-1] >= vocab:
            raise SoonerError(
                f"Eagle: legal has id {self.legal[-1]}, the target's vocabulary ends at "
                f"{vocab - 1}; give ids of this target"
            )
        if layer_ids := head.layer_ids_for(context.target):
            read_layers(context, layer_ids)
        return EagleDrafter(head, context, sizing, self.top_k or 1, self.legal), follow_choices
