"""Speculative decoding with a static draft tree: several continuations checked in one forward."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor

from ..checks import option
from ..engine.acceptance import VerifyResult, follow_choices, pure, reject_tree
from ..engine.interface import Drafter
from ..engine.loop import Rule
from ..engine.noise import RowNoise
from ..engine.sampling import Processing
from ..engine.tree import Tree
from .base import Method, draft_of
from .context import Context, same_tokenizer
from .tree_draft import STATIC_TREE, Branching, TreeDrafter, TreeShape, check_branching
from .tree_size import MeasuredSize, Size, TreeSize

SIBLINGS = ("drawn", "top")


@dataclass(frozen=True)
class SDTree(Method):
    """Runs speculative decoding with a static tree (SpecInfer, Miao et al. 2024; shape of EAGLE).

    Each round drafts a tree with one draft forward a level. Greedy decoding follows the
    target's choices down the tree. Sampling is exact either way:

    - `drawn` siblings are drawn without replacement from the draft's processed distribution and
      verified one after the other by rejection sampling;
    - `top` siblings are the draft's best tokens, and the target's own draw is followed while it
      is among them.

    Args:
        draft: a loaded HF model of one of the supported families.
        branching: the tree, for each level the child counts of the nodes above (see `Branching`),
            or `"auto"` for as many levels of EAGLE's tree as measurably pay, which may be none.
            What `"auto"` measures is kept from call to call of this object.
        siblings: how children are chosen when sampling.
        draft_inputs: the prompt as the draft's own processor gives it; the target's by default.
        tokenizer, draft_tokenizer: given both, they are compared token by token.

    Raises:
        SoonerError: a branching that is no tree, an unknown name, or different tokenizers.
    """

    draft: Any
    branching: Branching | Literal["auto"] = "auto"
    siblings: Literal["drawn", "top"] = option("drawn", known=SIBLINGS)
    draft_inputs: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    tokenizer: Any = field(default=None, repr=False, compare=False)
    draft_tokenizer: Any = field(default=None, repr=False, compare=False)
    measured: weakref.WeakKeyDictionary[Any, MeasuredSize] = field(
        default_factory=weakref.WeakKeyDictionary, init=False, repr=False, compare=False
    )
    name: ClassVar[str] = "sd-tree"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_branching(self, self._largest)
        same_tokenizer(self.tokenizer, self.draft_tokenizer)

    def largest_block(self) -> int:
        return 1 + TreeShape(self._largest).nodes

    @property
    def _largest(self) -> Branching:
        return STATIC_TREE if self.branching == "auto" else self.branching

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        adapter, inputs = draft_of(self, context)
        shape = TreeShape(self._largest)
        levels = [Size(shape.sizes[depth], depth) for depth in range(1, shape.depth + 1)]
        sizing = TreeSize(levels[-1])
        if self.branching == "auto":
            measured = MeasuredSize(levels[-1], levels)
            sizing = measured = self.measured.setdefault(context.target.model, measured)
            measured.controller.begin(context.stats.note)
        is_drawn = self.siblings == "drawn"
        drafter = self._drafter(adapter, inputs, context, shape, sizing, is_drawn)
        return drafter, reject_siblings

    def _drafter(self, *arguments: Any) -> Drafter:
        return TreeDrafter(*arguments)


@pure
def reject_siblings(
    tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
) -> VerifyResult:
    """Returns rejection sampling of drawn siblings; a plain draw where there is no draft."""
    if tree.probs is None:
        return follow_choices(tree, scores, processing, noise)
    return reject_tree(tree, processing.probabilities(scores), noise)
