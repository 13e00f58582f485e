"""Decoupled speculative verification: fixed drafts of a page, aligned anew with what the target
says after every round, and merged into one prefix tree."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ...checks import option
from ...engine.acceptance import VerifyResult, follow, follow_choices, pure
from ...engine.interface import Drafter, Outcome
from ...engine.loop import Rule
from ...engine.noise import RowNoise
from ...engine.sampling import Processing
from ...engine.stats.run import EXACT, RELAXED
from ...engine.tree import ROOT, Tree
from ...errors import SoonerError, UnsupportedError
from ..base import Method
from ..context import Context
from ..controller import Candidates, Controller, RoundCost
from ..prompt_lookup import allowed_nodes
from .alignment import Alignment, Cursor, Experience
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
    """Returns the target's choices, bent towards the draft by the threshold (eq. 8 to 11): what to
    follow at each block entry, `[rows, 1 + nodes]`.

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
            another number of prompts.
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
        if len(drafts) != context.prompts:
            raise SoonerError(
                f"HSD: drafts are for {len(drafts)} rows, the batch has {context.prompts}; give "
                "each row a list of drafts, an empty one for none"
            )
        rows, size = list[Alignment](), self.reference_window
        prior = experience.of(self.drafter() if callable(self.drafter) else self.drafter)
        for row in drafts:
            groups = [number for number, draft in enumerate(row) for _ in draft]
            index = DraftIndex([tokens for draft in row for tokens in draft], size, groups)
            rows += [Alignment(index, prior, self.separator) for _ in range(context.copies)]
        return rows


NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of nodes that are weighed against each other."""
FIRST = 4
"""Nodes of a trial, and half of the most nodes of the first tree."""
WORTH_A_TRIAL = 1.5
"""Tokens that a tree has to promise, where all look slow, for another trial to be worth it."""
FLOOR = 0.01
"""Least chance of a token that is weighed at all."""


@dataclass(frozen=True)
class PrefixTree:
    """A tree of which the first `n` nodes are the best tree of `n` nodes.

    Attributes:
        tokens: of each node.
        parents: index of each node's parent, or `ROOT`.
        chances: that the target says each node's path, falling.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)


def grow(
    row: Alignment, nodes: int, depth: int, width: int, floor: float = 0.0, vocab: float = inf
) -> PrefixTree:
    """Merge the continuations of a row (eq. 6), the likeliest token first.

    The chance of a node is that of its parent times how often such a continuation went on right.
    It never exceeds the parent's, so parents come first.

    Args:
        nodes: most tokens, `depth`: most of them on one path, and `width`: most leaves.
        floor: chance that a token must exceed to be worth verifying.
        vocab: ids that there are scores of; no other is drafted.
    """
    tree, chances, arrivals = PrefixTree(), row.prior.chances, count()
    # (negative chance, order of arrival, parent, depth, token, continuations behind it)
    heap: list[tuple[float, int, int, int, int, list[Cursor]]] = []

    def add_children(parent: int, above: int, chance: float, cursors: list[Cursor]) -> None:
        if above >= depth:
            return
        for token, (kind, rank, following) in row.branches(cursors).items():
            value = chance * chances[kind][min(rank, len(chances[kind]) - 1)]
            if value > floor and token < vocab:
                heappush(heap, (-value, next(arrivals), parent, above + 1, token, following))

    leaves = 0
    inner: set[int] = {ROOT}  # nodes with a child: a further child is one leaf more
    add_children(ROOT, 0, 1.0, row.cursors)
    while heap and len(tree.tokens) < nodes:
        value, _, parent, level, token, cursors = heappop(heap)
        is_leaf_more = parent in inner
        if is_leaf_more and leaves >= width:
            continue
        leaves += is_leaf_more
        inner.add(parent)
        tree.tokens.append(token)
        tree.parents.append(parent)
        tree.chances.append(-value)
        add_children(len(tree.tokens) - 1, level, -value, cursors)
    return tree


def cut(tree: PrefixTree, nodes: list[int]) -> PrefixTree:
    """Returns the tree of some of its nodes, which hang together."""
    if len(nodes) == len(tree.tokens):
        return tree
    places = {ROOT: ROOT, **{node: at for at, node in enumerate(nodes)}}
    return PrefixTree(
        [tree.tokens[node] for node in nodes],
        [places[tree.parents[node]] for node in nodes],
        [tree.chances[node] for node in nodes],
    )


class NodeCount:
    """The number of nodes that a `Controller` finds to pay most, plain decoding included.

    The chance of each node is known before it is verified, so that every round decides for itself.
    A pause only ends what looked slow by mistake.

    Args:
        largest: upper limit.
        controller: of the experience; `None` is always the same number, whatever it costs.
        needs_trials: plain rounds have no evidence of what would be accepted, as of rules that
            accept what the target would not have said.

    Attributes:
        floor: chance that a token must exceed to be worth verifying.
    """

    def __init__(
        self, largest: int, controller: Controller[int] | None = None, needs_trials: bool = False
    ) -> None:
        self.largest, self.controller, self.needs_trials = largest, controller, needs_trials
        self.sizes = [size for size in NODES if size < largest] + [largest]
        self.floor = 0.0 if controller is None else FLOOR
        self._last = FIRST

    def limit(self) -> int:
        """Returns nodes to grow: twice the last choice, so that costs are met step by step."""
        return self.largest if self.controller is None else min(self.largest, 2 * self._last)

    def choose(self, chances: Sequence[Sequence[float]]) -> int:
        """Returns nodes to verify of each tree, by the chances of its nodes, falling."""
        limit, rows = max(map(len, chances), default=0), len(chances)
        if self.controller is None or not limit:
            return self.largest if limit else 0
        sizes = self.sizes[: bisect_left(self.sizes, limit) + 1]
        within = np.minimum(sizes, limit)
        table = np.zeros((rows, 1 + limit))
        for row, each in enumerate(chances):
            table[row, 1 : 1 + len(each)] = each
        tokens = 1 + table.cumsum(1).mean(0)[within]
        trial = max(bisect_right(sizes, FIRST) - 1, 0)
        self.controller.reconsider()
        size = self.controller.choose(
            rows,
            lambda: Candidates(sizes, 1 + within, tokens, trial=trial),
            may_pause=self.needs_trials or tokens.max() >= WORTH_A_TRIAL,
        )
        if size is None:
            return 0
        self._last = max(size, FIRST)
        return size

    def observe(self, rows: int, nodes: int, seconds: float) -> None:
        """Records that a round over `rows` trees of up to `nodes` nodes took `seconds`."""
        if self.controller is not None:
            done = RoundCost(rows, 1 + nodes, seconds=seconds)
            self.controller.observe(done, is_counted=False)


class AlignedDrafter(Drafter):
    """Proposes, for each row, the tree of what its drafts say next (HSD, section 3.2).

    Args:
        context: the run.
        rows: each row's drafts, aligned with nothing yet; or what makes them behind the prefill,
            whose time counts as the drafts' own prefill.
        sizing: chooses how many nodes are verified.
        depth: most tokens on a path.
        width: most branches of a tree.
        is_relaxed: the rule weighs scores, of which a greedy row among others that draw has none
            but the best one's.
    """

    def __init__(
        self, context: Context, rows: list[Alignment] | Callable[[], list[Alignment]],
        sizing: NodeCount, depth: int, width: int, is_relaxed: bool = False,
    ) -> None:  # fmt: skip
        self.is_relaxed = is_relaxed
        self.context = context
        self.rows = [] if callable(rows) else rows
        self._make = rows if callable(rows) else None
        self.sizing = sizing
        self.depth, self.width = depth, width
        self.pending = (0, 0)  # rows and nodes of the trees that are verified

    def select_rows(self, rows: list[int]) -> None:
        if self._make is None:  # else they are made of the rows that go on behind the prefill
            self.rows = [self.rows[row] for row in rows]

    def merge(self, other: AlignedDrafter) -> None:
        draws = {drafter.context.processing.do_sample for drafter in (self, other)}
        if self.is_relaxed and len(draws) > 1:
            raise UnsupportedError(
                "HSD: under an acceptance_threshold below 1 rows that draw and rows that do not "
                "can't decode together; they wait for a batch of their own"
            )
        self.rows += other.rows

    def begin(self, outcome: Outcome) -> Iterator[None]:
        if self._make is not None:
            with self.context.stats.phase("draft_prefill"):
                made, self._make = self._make(), None
            self.rows = [made[row] for row in outcome.rows.active]
        return iter(())

    def propose(self, outcome: Outcome) -> Tree:
        if not outcome.is_first:
            outcome.round_time.then(partial(self.sizing.observe, *self.pending))
        for row, new in zip(self.rows, outcome.new, strict=True):
            row.advance(new)
        tree = self._tree(outcome)
        self.pending = (tree.rows, tree.nodes)
        return tree

    def _tree(self, outcome: Outcome) -> Tree:
        sizing, processing, grown = self.sizing, self.context.processing, list[PrefixTree]()
        vocab = outcome.scores.shape[-1]
        for number, (row, budget) in enumerate(zip(self.rows, outcome.budget, strict=True)):
            depth = min(self.depth, budget - 1)  # the last token is the target's
            tree = grow(row, sizing.limit(), depth, self.width, sizing.floor, vocab)
            nodes = allowed_nodes(processing, number, tree.tokens, tree.parents)
            grown.append(cut(tree, nodes))
        size = sizing.choose([tree.chances for tree in grown])
        device = outcome.hidden.device
        if not size or not any(tree.tokens for tree in grown):
            return Tree.empty(len(grown), device)
        tokens = [tree.tokens[:size] for tree in grown]
        return Tree.from_lists(tokens, [tree.parents[:size] for tree in grown], str(device))
