"""Relaxed acceptance (Spec-VLA): near numbers pass; the longest, then nearest path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..checks import check_number, check_whole
from ..engine.acceptance import VerifyResult, follow_choices, longest_path
from ..engine.interface import Drafter
from ..engine.loop import Rule
from ..engine.noise import RowNoise
from ..engine.sampling import Processing
from ..engine.stats.deviation import Deviation
from ..engine.stats.run import EXACT, RELAXED
from ..engine.tree import Tree
from ..errors import SoonerError
from .base import Method
from .context import Context

if TYPE_CHECKING:
    from ..models.openvla.statistics import ActionStatistics, ActionTokens


class ToleranceResult(NamedTuple):
    """A verdict, and how far its accepted tokens are from the target's choices.

    Attributes:
        verdict: what is accepted.
        dims: dimension that each token of the path speaks of, `[rows, depth]`.
        distance: signed, in bins, from the target's choice there, `[rows, depth]`.
    """

    verdict: VerifyResult
    dims: Tensor
    distance: Tensor


SLACK = 1e-9
"""Share of a bin by which rounding may make a distance that is meant to fit too short."""


@dataclass(frozen=True)
class Tolerance:
    """How far a drafted action token may be from the target's choice, in bins of its dimension.

    A token is acceptable below a node if `|bin(draft) - bin(choice there)| <= r`, with the `r` of
    the dimension that it speaks of; an id that is no action only if it is the choice itself. Of
    the acceptable paths the longest is kept, of equally long ones the nearest, then the one that
    was drafted first. When sampling, the choice is the target's draw.

    The paper has one `r` for all; here each dimension has its own, and the gripper, which is open
    or closed, has none unless `bins` names every dimension.

    Args:
        tokens: the policy's action tokens.
        dims: tokens of one action, which follow each other in a fixed order.
        bins: r; for all dimensions, or one for each.
        gripper: dimension that stays exact where `bins` is one number; `None` relaxes all.

    Raises:
        SoonerError: a negative r, another number of them than `dims`, no such dimension.
    """

    tokens: ActionTokens
    dims: int
    bins: int | tuple[int, ...] = 0
    gripper: int | None = -1

    def __post_init__(self) -> None:
        check_whole("tolerance: dims", self.dims, hint=", the tokens of an action")
        if isinstance(self.bins, list):
            object.__setattr__(self, "bins", tuple(self.bins))
        bins = self.bins if isinstance(self.bins, tuple) else (self.bins,)
        if isinstance(self.bins, tuple) and len(bins) != self.dims:
            raise _wrong_number(len(bins), self.dims)
        for r in bins:
            check_whole("tolerance", r, 0, hint=" (bins; 0 is exact)")
        if self.gripper is not None and not -self.dims <= self.gripper < self.dims:
            raise SoonerError(
                f"tolerance: gripper is dimension {self.gripper}, an action has {self.dims}; give "
                f"{-self.dims} to {self.dims - 1}, or None"
            )

    @classmethod
    def physical(
        cls, tokens: ActionTokens, statistics: ActionStatistics, units: Sequence[float]
    ) -> Tolerance:
        """Makes a tolerance from metres and radians: as many whole bins as fit into them.

        A dimension whose bins have no width (its statistics know one value alone) stays exact.

        Args:
            statistics: of the data set, which know how wide a bin is in each dimension.
            units: one for each dimension, in the unit of the un-normalised action.

        Raises:
            SoonerError: a negative or infinite one, another number of them than dimensions.
        """
        widths = statistics.bin_width(tokens).tolist()
        if len(units) != len(widths):
            raise _wrong_number(len(units), len(widths))
        for unit in units:
            check_number("tolerance", unit, hint=", in physical units")
        bins = tuple(
            math.floor(unit / width + SLACK) if width > 0 else 0
            for unit, width in zip(units, widths, strict=True)
        )
        return cls(tokens, len(bins), tuple(min(r, tokens.edges - 1) for r in bins))

    @cached_property
    def radii(self) -> tuple[int, ...]:
        """Returns r of each dimension, the gripper's settled."""
        if isinstance(self.bins, tuple):
            return self.bins
        radii = [self.bins] * self.dims
        if self.gripper is not None:
            radii[self.gripper] = 0
        return tuple(radii)

    @property
    def is_exact(self) -> bool:
        """Every r is 0, so the rule is the exact one."""
        return not any(self.radii)

    def rule(self, context: Context) -> Rule:
        """Returns the rule of one run, which is then *relaxed*, with its deviation in the stats.

        Raises:
            SoonerError: the target's vocabulary does not reach to the action tokens.
        """
        known = context.target.vocab_size
        if self.tokens.vocab_size > known:
            raise SoonerError(
                f"tolerance: actions end at id {self.tokens.vocab_size - 1}, the target has "
                f"{known} ids; take ActionTokens.of(model.config)"
            )
        if self.is_exact:
            return follow_choices
        rows, limit, stats = context.rows, context.stopping.limit or 0, context.stats
        span = self.tokens.edges - 1
        radii = torch.tensor(self.radii, device=context.target.device)  # [dims]
        deviation = Deviation.zeros(rows.batch, self.dims, span, context.target.device, limit)
        stats.mode, stats.deviation = RELAXED, deviation

        def rule(
            tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
        ) -> VerifyResult:
            choices = processing.choose(scores, tree, noise)
            verified = self.verify(tree, choices, noise.places, radii)
            lengths = ((row, len(rows.generated[row])) for row in rows.active)
            room = torch.tensor([deviation.room(*pair) for pair in lengths], device=choices.device)
            steps = torch.arange(verified.distance.shape[1], device=choices.device)
            counted = steps < torch.minimum(verified.verdict.accepted, room)[:, None]
            deviation.add(rows.active, verified.dims, verified.distance, counted)
            return verified.verdict

        return rule

    def verify(
        self, tree: Tree, choices: Tensor, generated: Tensor, radii: Tensor
    ) -> ToleranceResult:
        """Returns the nearest of the longest acceptable paths of each row; a pure function.

        Args:
            choices: the target's choice at each block entry, `[rows, 1 + nodes]`.
            generated: earlier tokens of each row, which tell the next dimension, `[rows]`.
            radii: `self.radii` on the device, `[dims]`.
        """
        above = choices.gather(1, tree.parents + 1)  # [rows, nodes]
        places = generated[:, None] + tree.depths()[:, 1:] - 1
        dims = places % self.dims  # [rows, nodes]
        drafted, chosen = self.tokens.bins(tree.tokens), self.tokens.bins(above)
        distance = drafted - chosen
        is_action = (drafted >= 0) & (chosen >= 0)
        near = is_action & (distance.abs() <= radii[dims])
        hit = ((tree.tokens == above) | near) & tree.valid()
        distance = torch.where(is_action, distance, 0)
        verdict = longest_path(tree, hit, choices, distance.abs())
        nodes = (verdict.path - 1).clamp(min=0)
        return ToleranceResult(verdict, dims.gather(1, nodes), distance.gather(1, nodes))


def _wrong_number(actual: int, expected: int) -> SoonerError:
    return SoonerError(
        f"tolerance has {actual} values, an action has {expected} dimensions; give one number, or "
        f"{expected} of them"
    )


@dataclass(frozen=True)
class Relaxed(Method):
    """Verifies another method's drafts under relaxed acceptance (Spec-VLA, eq. 5); see `Tolerance`.

    `Relaxed(Eagle(head), tolerance)` is Spec-VLA; a draft model of a robot policy, a static tree or
    prompt lookup profit from it as well. A tolerance of 0 is exact, greedy and sampling, for every
    draft that does not look at the target's draws.

    Args:
        method: that drafts; its own rule is not used.
        tolerance: how far a draft may be from the target's choice.

    Raises:
        SoonerError: a method that has an acceptance threshold of its own.
    """

    method: Method
    tolerance: Tolerance
    name: ClassVar[str] = "relaxed"

    def __post_init__(self) -> None:
        if isinstance(self.method, Relaxed) or hasattr(self.method, "acceptance_threshold"):
            kind = type(self.method).__name__
            raise SoonerError(f"Relaxed: {kind} has a tolerance of its own; give one of them")

    @property
    def mode(self) -> str:
        return EXACT if self.tolerance.is_exact else RELAXED

    @property
    def drafts_chains(self) -> bool:
        return self.method.drafts_chains

    @property
    def needs_whole_target(self) -> bool:
        return self.method.needs_whole_target

    @property
    def needs_whole_prompt(self) -> bool:
        return self.method.needs_whole_prompt

    def slot_bytes(self) -> int:
        return self.method.slot_bytes()

    def largest_block(self) -> int:
        return self.method.largest_block()

    def expect(self, rows: int, waiting: int, max_rows: int) -> None:
        self.method.expect(rows, waiting, max_rows)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        rule = self.tolerance.rule(context)  # it may refuse, and a drafter would have to be closed
        drafter, _ = self.method.build(context)
        return drafter, rule
