"""Jacobi decoding as a drafter: the window is drawn anew from the target's newest distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...decoding.grid import GridConstraint
from ...decoding.interface import Drafter, Outcome
from ...decoding.rows import Rows
from ...decoding.tree import Tree
from .couplings import Coupling, Draws, gumbel_draw
from .trace import Trace
from .window import REACH, Filling, Window

if TYPE_CHECKING:
    from ..base import Context


@dataclass(frozen=True)
class Shift:
    """How the places of the last window become those of the next.

    A row that accepted `a` drafts and was given its own token behind them starts its next window at
    place `a + 1` of the last one. There the last forward left a distribution for every place, and a
    draft for all but the place behind its end.

    Attributes:
        source: place of the last window that each place of the next one was, `[rows, places]`.
        drafted: it has a draft and a distribution, `[rows, places]` bool.
        judged: places of each row that have a distribution.
        sizes: places of each row's next window.
    """

    source: Tensor
    drafted: Tensor
    judged: list[int]
    sizes: list[int]


class JacobiDrafter(Drafter):
    """Keeps a window of drafts in front of each row and resamples it every round.

    Args:
        context: of the run.
        window: places of the window.
        coupling: how a place is drawn again.
        filling: how a place is drawn first.
        init: name of `filling`, for how far back it looks.
        constraint: what each place allows; without one all that is generated is one span.
        trace: told what every round did.
    """

    def __init__(
        self,
        context: Context,
        window: int,
        coupling: Coupling,
        filling: Filling,
        init: str,
        constraint: GridConstraint | None,
        trace: Trace | None = None,
    ) -> None:
        self.context, self.window = context, window
        self.coupling, self.filling = coupling, filling
        self.constraint, self.trace = constraint, trace
        grid = None if constraint is None else constraint.grid
        self.reach = max(REACH[init](grid)) if init in REACH else 0
        self.seed = _seed(context)
        self.pending = Tree.empty(context.rows.batch, context.target.device)

    def start(self, pending: Tree, rows: Rows) -> None:
        self.pending = pending

    def keep_rows(self, rows: list[int]) -> None:
        self.pending = self.pending.keep_rows(rows)

    def finish(self, outcome: Outcome) -> Tree:
        places = self._places(outcome)
        shift = self._shift(outcome, places)
        if not max(shift.sizes, default=0):
            return Tree.empty(len(shift.sizes), outcome.scores.device)
        if not self.context.processing.do_sample:
            return self._greedy(outcome, shift)
        return self._sampled(outcome, shift, places)

    def _places(self, outcome: Outcome) -> list[int]:
        """Place of each row's next token in its picture; -1 outside of one."""
        if self.constraint is None:
            return [len(outcome.rows.said(row)) for row in range(len(outcome.new))]
        return self.constraint.roots(outcome.rows)

    def _shift(self, outcome: Outcome, places: list[int]) -> Shift:
        sizes, starts, behind = [], [], []
        for row, place in enumerate(places):
            size = min(self.window, max(outcome.budget[row] - 1, 0))
            if self.constraint is not None:  # the last place is left to the target's own token
                end = self.constraint.grid.length
                size = min(size, end - 1 - place) if place >= 0 else 0
            sizes.append(size)
            starts.append(outcome.accepted[row] + 1)
            behind.append(self.pending.sizes[row])
        device = outcome.scores.device
        line = torch.arange(max(sizes, default=0), device=device)
        source = torch.tensor(starts, device=device)[:, None] + line  # [rows, places]
        drafted = source < torch.tensor(behind, device=device)[:, None]
        judged = [
            min(max(last + 1 - start, 0), size)
            for last, start, size in zip(behind, starts, sizes, strict=True)
        ]
        return Shift(source.clamp(max=self.pending.nodes), drafted, judged, sizes)

    def _greedy(self, outcome: Outcome, shift: Shift) -> Tree:
        """The fixed-point iteration itself: every draft is the newest argmax (Song et al. 2021)."""
        best = outcome.scores.argmax(-1)  # [rows, 1 + nodes]
        # Behind the last judged place, which padding may not reach, the last argmax is repeated.
        last = torch.tensor(self.pending.sizes, device=best.device)[:, None]
        return Tree.chain(best.gather(1, torch.minimum(shift.source, last)), shift.sizes)

    def _sampled(self, outcome: Outcome, shift: Shift, places: list[int]) -> Tree:
        p = self.context.processing.probabilities(outcome.scores)  # [rows, 1 + nodes, vocab]
        draws = self._draws(outcome, shift)
        newest = _take(p, shift.source)  # [rows, places, vocab]
        tokens = gumbel_draw(newest, draws)
        if self.pending.nodes:
            assert self.pending.probs is not None
            q = _take(self.pending.probs, shift.source)
            x = self.pending.tokens.gather(1, shift.source.clamp(max=self.pending.nodes - 1))
            again = self.coupling(newest, q, x, draws)
            tokens = torch.where(shift.drafted, again, tokens)
            if self.trace is not None:
                self.trace.resampled(outcome, shift.drafted, newest, q, x, tokens, draws.places)
        window = self._window(outcome, shift, places, draws, tokens, newest, p)
        tokens, probs = self.filling(window)
        # One more entry, as every drawn chain has: the place behind the window is not drafted.
        probs = torch.cat([probs, torch.zeros_like(probs[:, :1])], 1)
        return Tree.chain(tokens, shift.sizes, probs)

    def _draws(self, outcome: Outcome, shift: Shift) -> Draws:
        device = outcome.scores.device
        rows = torch.tensor(outcome.rows.active, device=device)
        said = [len(outcome.rows.said(row)) for row in range(len(outcome.new))]
        line = torch.arange(shift.source.shape[1], device=device)
        places = torch.tensor(said, device=device)[:, None] + line
        return Draws(self.seed, rows, places, self.context.generator)

    def _window(
        self,
        outcome: Outcome,
        shift: Shift,
        places: list[int],
        draws: Draws,
        tokens: Tensor,
        probs: Tensor,
        p: Tensor,
    ) -> Window:
        device = tokens.device
        roots = torch.tensor(places, device=device)[:, None]
        line = torch.arange(tokens.shape[1], device=device)
        here = torch.arange(len(places), device=device)
        return Window(
            tokens=tokens,
            probs=probs,
            newest=p[here, torch.tensor(self.pending.sizes, device=device)],
            filled=shift.judged,
            grid_places=torch.where(roots >= 0, roots + line, -1),
            said=self._said(outcome, places, device),
            draws=draws,
            constraint=self.constraint,
        )

    def _said(self, outcome: Outcome, places: list[int], device: torch.device) -> Tensor:
        """The end of each row's picture so far, as far back as copies reach, `[rows, reach]`."""
        lines = []
        for row, place in enumerate(places):
            count = min(self.reach, max(place, 0))
            said = outcome.rows.prefix(row)[-count:] if count else []
            lines.append([-1] * (self.reach - count) + said)
        return torch.tensor(lines, dtype=torch.long, device=device).view(len(lines), self.reach)


def _take(distributions: Tensor, source: Tensor) -> Tensor:
    """Distributions at the places `source [rows, places]`."""
    here = torch.arange(len(source), device=source.device)[:, None]
    return distributions[here, source]


def _seed(context: Context) -> int:
    """31 bits for the shared noise, from the run's own generator."""
    generator = context.generator
    device = generator.device if generator is not None else torch.device("cpu")
    return int(torch.randint(1 << 31, (1,), generator=generator, device=device))
