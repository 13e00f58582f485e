"""Decoupled speculative verification: fixed drafts of a page, aligned with what the target says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...checks import option
from ...engine.acceptance import VerifyResult, follow, follow_choices, pure
from ...engine.interface import Drafter
from ...engine.loop import Rule
from ...engine.noise import RowNoise
from ...engine.sampling import Processing
from ...engine.stats.run import EXACT, RELAXED
from ...engine.tree import Tree
from ...errors import SoonerError
from ..base import Method
from ..context import Context
from .alignment import Alignment, Experience
from .drafter import AlignedDrafter, NodeCount
from .index import DraftIndex, Drafts, read_drafts


@cache  # one rule, one graph
def follow_threshold(acceptance_threshold: float) -> Rule:
    """Returns a rule that descends by eq. 8 to 11 with an acceptance threshold below 1."""

    @pure
    def rule(tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise) -> VerifyResult:
        choices = processing.choose(scores, tree, noise)
        return follow(tree, accepted_choices(tree, scores, choices, acceptance_threshold))

    return rule


def accepted_choices(tree: Tree, scores: Tensor, choices: Tensor, tau: float) -> Tensor:
    """Returns the target's choices, bent towards the draft where the threshold allows it (eq. 8 to
    11).

    At each entry the likeliest child `u` (eq. 8) takes the place of the target's choice if

        log p(best) / log p(u) >= tau

    with `best` the likeliest token of all (eq. 9, 10); a choice that is among the children stays.
    Logarithms are not positive, so this is `log p(best) <= tau * log p(u)`, which also says
    what the quotient leaves open: with `p(best) = 1` no other token passes, nor does any of
    `p(u) = 0`. Following the result down the tree ends with the target's own choice (eq. 11). When
    sampling, the choice is the draw.

    Args:
        tree: draft of `rows` rows and `nodes` nodes.
        scores: processed, `[rows, 1 + nodes, vocab]`.
        choices: the target's choice at each block entry, `[rows, 1 + nodes]`.
        tau: the acceptance threshold, above 0 and up to 1.

    Returns:
        What to follow at each block entry, `[rows, 1 + nodes]`.
    """
    if tree.nodes == 0:
        return choices
    above = tree.parents + 1  # [rows, nodes], as block entries
    total = scores.logsumexp(-1)  # [rows, entries]
    best = (scores.amax(-1) - total).gather(1, above)  # [rows, nodes], log p of the best token
    rows = torch.arange(tree.rows, device=scores.device)[:, None]
    log_p = scores[rows, above, tree.tokens] - total.gather(1, above)  # [rows, nodes], log p(u)
    chosen = choices.gather(1, above) == tree.tokens
    passes = (chosen | (best <= tau * log_p)) & tree.valid()
    value = torch.where(chosen, torch.inf, log_p).masked_fill(~passes, -torch.inf)
    child = _best_child(tree, value, passes)
    drafted = tree.tokens.gather(1, child.clamp(max=tree.nodes - 1))
    return torch.where(child < tree.nodes, drafted, choices)


def _best_child(tree: Tree, value: Tensor, passes: Tensor) -> Tensor:
    """Returns the first best child of each entry that passes, `[rows, entries]`; the number of
    nodes where there is none."""
    above, nodes = tree.parents + 1, tree.nodes
    best = value.new_full((tree.rows, 1 + nodes), -torch.inf)
    best = best.scatter_reduce(1, above, value, "amax")
    is_best = passes & (value == best.gather(1, above))
    line = torch.arange(nodes, device=above.device).expand_as(above)
    none = torch.full((tree.rows, 1 + nodes), nodes, device=above.device)
    return none.scatter_reduce(1, above, torch.where(is_best, line, nodes), "amin")


@dataclass(frozen=True)
class HSD(Method):
    """Runs hierarchical speculative decoding's verification (Liao et al. 2026, section 3.2).

    Drafts are made once, by whatever is quick and rough, such as an OCR pipeline, and never
    change. After each round the last tokens, the reference window, are looked up in them (eq. 4,
    5), all continuations are merged into a prefix tree (eq. 6), and one forward verifies it (eq. 7
    to 11).
    A row's drafts are an unordered set: which follows which is the target's decision.

    Beyond the paper, steps are saved where no such window matches: at the start and between drafts,
    openings of unused drafts are proposed; a shorter window is tried; and behind a token that a
    draft got wrong, the draft is taken up again.

    Args:
        drafts: for each prompt a list of drafts, each a list, array or tensor of token ids, or a
            text. A row without drafts decodes plainly. A draft may be a list of such: alternatives
            of one region, of which none is proposed again once one was followed. Or a function
            that returns all this, called once the prompt is prefilled, so that drafts may be made
            meanwhile.
        reference_window: tokens that must match, n; fewer are tried where nothing does.
        acceptance_threshold: tau of eq. 10. 1 is exact; below it (the paper has 0.75) a draft token
            passes that is nearly as likely as the target's best one, and the result is *relaxed*.
        nodes: draft tokens that a forward verifies, or `"auto"` for the number that measurably
            pays, which may be none.
        max_nodes: upper limit for `"auto"`.
        depth: most draft tokens on one path.
        width: most branches of a tree.
        separator: token ids that the target is expected to write between two drafts, until it is
            seen what it does write there.
        tokenizer: turns drafts that are texts into ids.
        experience: what earlier pages taught about drafts and costs, and where more of it goes;
            for one model on one device.
        drafter: name of who made the drafts, or a function that tells it once they are made. What
            was learnt of its earlier drafts is then used for these. Without, all drafts that name
            nobody are taken as alike.

    Raises:
        SoonerError: drafts that are no such lists, an option out of range; in a run, drafts for
            another number of prompts, or of another vocabulary.
    """

    drafts: Any = field(repr=False, compare=False)
    reference_window: int = option(3, 1)
    acceptance_threshold: float = option(1.0, 0, 1, above=True, hint=" (exact)")
    nodes: int | Literal["auto"] = option("auto", 1)
    max_nodes: int = option(64, 1)
    depth: int = option(64, 1)
    width: int = option(8, 1)
    separator: tuple[int, ...] = ()
    tokenizer: Any = field(default=None, repr=False, compare=False)
    experience: Experience | None = field(default=None, repr=False, compare=False)
    drafter: str | Callable[[], str] = field(default="", repr=False, compare=False)
    name: ClassVar[str] = "hsd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.drafts):
            object.__setattr__(self, "drafts", read_drafts(self.drafts, self.tokenizer))
        (((separator,),),) = read_drafts([[self.separator]], self.tokenizer)
        object.__setattr__(self, "separator", separator)

    @property
    def mode(self) -> str:
        return EXACT if self.acceptance_threshold == 1 else RELAXED

    def largest_block(self) -> int:
        return 1 + (self.max_nodes if self.nodes == "auto" else int(self.nodes))

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        experience = self.experience if self.experience is not None else Experience()
        is_late = callable(self.drafts)

        def rows() -> list[Alignment]:
            drafts = read_drafts(self.drafts(), self.tokenizer) if is_late else self.drafts
            return self._rows(drafts, context, experience)

        is_relaxed, sizing = self.mode != EXACT, NodeCount(self.largest_block() - 1)
        if self.nodes == "auto":
            sizing = NodeCount(self.max_nodes, experience.controller, is_relaxed)
        made = rows if is_late else rows()
        drafter = AlignedDrafter(context, made, sizing, self.depth, self.width, is_relaxed)
        if is_relaxed:
            return drafter, follow_threshold(self.acceptance_threshold)
        return drafter, follow_choices

    def _rows(self, drafts: Drafts, context: Context, experience: Experience) -> list[Alignment]:
        """Returns each row's drafts, indexed; copies of a prompt share theirs."""
        self._check(drafts, context)
        rows, size = list[Alignment](), self.reference_window
        prior = experience.of(self.drafter() if callable(self.drafter) else self.drafter)
        for row in drafts:
            groups = [number for number, draft in enumerate(row) for _ in draft]
            index = DraftIndex([tokens for draft in row for tokens in draft], size, groups)
            rows += [Alignment(index, prior, self.separator) for _ in range(context.copies)]
        return rows

    def _check(self, drafts: Drafts, context: Context) -> None:
        if len(drafts) != context.prompts:
            raise SoonerError(
                f"HSD: drafts are for {len(drafts)} rows, the batch has {context.prompts}; give "
                "each row a list of drafts, an empty one for none"
            )
        known = context.target.vocab_size
        each = (tokens for row in drafts for draft in row for tokens in draft)
        largest = max((max(tokens, default=0) for tokens in each), default=0)
        if max(largest, *self.separator, 0) >= known:
            raise SoonerError(
                f"HSD: drafts hold token id {largest}, the target has {known} ids; encode them "
                "with the target's own tokenizer"
            )
