"""Speculative coupled decoding: a window of the last iteration, drawn anew, is the next draft."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...checks import option
from ...engine.acceptance import follow_shared_noise
from ...engine.interface import Drafter, Outcome
from ...engine.loop import Rule
from ...engine.tree import Tree
from ...errors import SoonerError
from ..base import Method
from ..context import Context
from ..speculative import reject
from .couplings import (
    COPIES,
    COUPLINGS,
    FILLINGS,
    Coupling,
    Draws,
    JacobiWindow,
    gumbel_draw,
    reach,
    weakened,
)


@dataclass(frozen=True)
class Shift:
    """Says how the places of the last window become those of the next.

    A row that accepted `a` drafts and was given its own token behind them starts its next window at
    place `a + 1` of the last one. There the last forward left a distribution for every place, and a
    draft for all but the place behind its end.

    Attributes:
        source: place of the last window that each place of the next one was, and one more place,
            `[rows, places + 1]`.
        drafted: leading places of each row that have a draft and a distribution.
        verified: leading places of each row that have a distribution.
        sizes: places of each row's next window.
        sent: what draws need of the host, in one upload, `[rows, 4 + seen]`: `drafted`, `verified`,
            `sizes` and the place in its picture of each row, then what it said last. `None` where
            nothing is drawn.
    """

    source: Tensor
    drafted: list[int]
    verified: list[int]
    sizes: list[int]
    sent: Tensor | None


class JacobiDrafter(Drafter):
    """Keeps a window of drafts in front of each row and resamples it every round.

    Without a constraint all that is generated is one span.

    Args:
        context: of the run.
        jacobi_window: places of the window.
        coupling: how a place is drawn again.
        init: how a place is drawn first, a name of `FILLINGS`.
    """

    def __init__(self, context: Context, jacobi_window: int, coupling: Coupling, init: str) -> None:
        self.context, self.jacobi_window = context, jacobi_window
        self.coupling, self.filling = coupling, FILLINGS[init]
        self.constraint = context.constraint
        grid = None if self.constraint is None else self.constraint.grid
        self.reach = max(reach(init, grid)) if init in COPIES else 0
        self.pending = Tree.empty(context.rows.batch, context.target.device)
        self.sizes = [0] * context.rows.batch  # of the pending windows

    def select_rows(self, rows: list[int]) -> None:
        self.pending = self.pending.select_rows(
            torch.tensor(rows, device=self.pending.tokens.device)
        )
        self.sizes = [self.sizes[row] for row in rows]

    def merge(self, other: JacobiDrafter) -> None:
        """Nothing is pending of rows that have just begun."""
        have, new = self.pending, other.pending.rows
        self.pending = Tree.chain(
            pad(have.tokens, (0, 0, 0, new)),
            pad(have.sizes, (0, new)),
            None if have.probs is None else pad(have.probs, (0, 0, 0, 0, 0, new)),
        )
        self.sizes += other.sizes

    def propose(self, outcome: Outcome) -> Tree:
        shift = self._shift(outcome)
        if not max(shift.sizes, default=0):
            self.pending = Tree.empty(len(shift.sizes), outcome.scores.device)
        elif not self.context.processing.do_sample:
            self.pending = self._greedy(outcome, shift)
        else:
            self.pending = self._sampled(outcome, shift)
        self.sizes = shift.sizes
        return self.pending

    def _shift(self, outcome: Outcome) -> Shift:
        # Place of each row's next token in its picture; -1 outside of one.
        if self.constraint is None:
            places = [len(outcome.rows.output(row)) for row in range(len(outcome.new))]
        else:
            places = self.constraint.roots(outcome.rows)
        sizes = [self._size(outcome.budget[row], place) for row, place in enumerate(places)]
        device = outcome.scores.device
        line = torch.arange(max(sizes, default=0) + 1, device=device)
        source = outcome.committed.entries[:, None] + line  # behind the root and what was accepted
        rows = list(zip(self.sizes, outcome.accepted, sizes, strict=True))
        drafted = [min(max(last - accepted - 1, 0), size) for last, accepted, size in rows]
        verified = [min(max(last - accepted, 0), size) for last, accepted, size in rows]
        sent = None
        if self.context.processing.do_sample and any(sizes):
            outputs = self._outputs(outcome, places)
            lines = zip(drafted, verified, sizes, places, outputs, strict=True)
            sent = torch.tensor([[*counts, *tail] for *counts, tail in lines], device=device)
        return Shift(source.clamp(max=self.pending.nodes), drafted, verified, sizes, sent)

    def _size(self, budget: int, place: int) -> int:
        """Returns places to draft; the last token of a row or picture is the target's."""
        size = min(self.jacobi_window, max(budget - 1, 0))
        if self.constraint is None:
            return size
        return min(size, self.constraint.grid.length - 1 - place) if place >= 0 else 0

    def _greedy(self, outcome: Outcome, shift: Shift) -> Tree:
        """Returns the fixed-point iteration itself: drafts are the newest argmax (Song et al.
        2021)."""
        best = outcome.scores.argmax(-1)  # [rows, 1 + nodes]
        # Behind the last verified place, which padding may not reach, the last argmax is repeated.
        last = self.pending.sizes[:, None]
        return Tree.chain(best.gather(1, torch.minimum(shift.source[:, :-1], last)), shift.sizes)

    def _sampled(self, outcome: Outcome, shift: Shift) -> Tree:
        p = self.context.processing.probabilities(outcome.scores)  # [rows, 1 + nodes, vocab]
        line = torch.arange(shift.source.shape[1] - 1, device=outcome.scores.device)
        draws = Draws(outcome.noise, line)
        # One more entry, as every drawn chain has: the place behind the window is not drafted.
        probs = _take(p, shift.source)  # [rows, places + 1, vocab]
        probs[:, -1].fill_(0.0)
        tokens = torch.zeros_like(shift.source[:, :-1])
        if drafted := max(shift.drafted):
            tokens[:, :drafted] = self._again(shift, probs[:, :drafted], draws)
        # Where the drafts of the shortest row end, something is to be drawn for the first time.
        tail = slice(min(shift.drafted), tokens.shape[1])
        tokens[:, tail], probs[:, tail] = self.filling(
            self._window(shift, draws, tokens, probs, p, tail)
        )
        assert shift.sent is not None
        return Tree.chain(tokens, shift.sent[:, 2], probs)

    def _again(self, shift: Shift, p: Tensor, draws: Draws) -> Tensor:
        """Returns drafts that replace those of the last window, `[rows, drafted]`."""
        drafted = p.shape[1]
        source, draws = shift.source[:, :drafted], draws.of(slice(drafted))
        x = self.pending.tokens.gather(1, source.clamp(max=self.pending.nodes - 1))
        if self.pending.probs is not None:
            q = _take(self.pending.probs, source)
        else:  # rows that draw have joined: before, every draft was certain
            q = torch.zeros_like(p).scatter_(2, x[..., None], 1.0)
        return self.coupling(p, q, x, draws)

    def _window(
        self, shift: Shift, draws: Draws, tokens: Tensor, probs: Tensor, p: Tensor, tail: slice
    ) -> JacobiWindow:
        """Returns the places `tail`, of which those behind each row's last draft are to fill."""
        assert shift.sent is not None
        device = tokens.device
        drafted, verified, roots = shift.sent[:, 0], shift.sent[:, 1], shift.sent[:, 3:4]
        line = torch.arange(tail.start, tail.stop, device=device)
        here = torch.arange(len(tokens), device=device)
        draws, new, probs = draws.of(tail), tokens[:, tail], probs[:, tail]
        # The place behind the last draft was verified too, so it need not be guessed.
        is_drafted = line < drafted[:, None]
        return JacobiWindow(
            tokens=torch.where(is_drafted, new, gumbel_draw(probs, draws)), probs=probs,
            newest=p[here, self.pending.sizes], filled=verified - tail.start,
            minimum=min(shift.verified) - tail.start,
            grid_places=torch.where(roots >= 0, roots + line, -1),
            output=torch.cat([shift.sent[:, 4:], tokens[:, : tail.start]], 1), draws=draws,
            constraint=self.constraint,
        )  # fmt: skip

    def _outputs(self, outcome: Outcome, places: list[int]) -> list[list[int]]:
        """Returns the end of each row's picture, as far as copies reach, `[rows][reach]`."""
        lines = []
        for row, place in enumerate(places):
            count = min(self.reach, max(place, 0))
            tokens = outcome.rows.prefix(row)[-count:] if count else []
            lines.append([-1] * (self.reach - count) + tokens)
        return lines


def _take(distributions: Tensor, source: Tensor) -> Tensor:
    """Returns distributions at the places `source [rows, places]`."""
    here = torch.arange(len(source), device=source.device)[:, None]
    return distributions[here, source]


VERIFY = ("ratio", "noise")


@dataclass(frozen=True)
class CoupledJacobi(Method):
    """Runs speculative Jacobi decoding with coupled draws (So et al. 2025, algorithms 2, 5 to 7).

    No draft model: each round the target looks at a whole window of drafts, the leading ones are
    verified, and those behind are drawn anew from the distributions that the
    same forward gave, coupled with what stood there. Exact for every option, because the draft
    distribution of each place is the one it was last drawn from, also behind a rejection.

    Under greedy decoding it is plain Jacobi iteration. Outside of a picture's span (in a text
    around it) nothing is drafted.

    Args:
        jacobi_window: places drafted ahead, L.
        coupling: `"gumbel"` shares one noise among all iterations, `"maximal"` keeps a draft with
            the greatest possible probability, `"independent"` is SJD (Teng et al. 2024).
        strength: probability that a place is coupled at all, the paper's alpha; 0 is SJD.
        init: first draft of a place. `"last"` draws from the newest distribution at hand,
            `"random"` uniformly, `"left"`, `"above"` and `"previous-frame"` copy a neighbour. By
            default a neighbour that resembles the place: `"above"` in pictures,
            `"previous-frame"` in clips, else `"last"`; it matters little (docs/log.md).
        verify: how a draft is judged. `"ratio"` is rejection sampling, as in the paper. `"noise"`
            draws each token with the noise of its place, and keeps the draft that it equals: the
            same seed gives the same picture at every window, and under
            `Autoregressive(shared_noise=True)`: code for code in fp32, up to the first tie in
            bf16 (docs/exactness.md). By default `"noise"` where the coupling shares its
            noise in full, else `"ratio"`.

    Raises:
        SoonerError: jacobi_window below 1, a strength outside 0 to 1, an unknown name.
    """

    jacobi_window: int = option(64, 1)
    coupling: str = option("gumbel", known=COUPLINGS)
    strength: float = option(1.0, 0, 1)
    init: str | None = option(None, known=FILLINGS)
    verify: str | None = option(None, known=VERIFY)
    name: ClassVar[str] = "jacobi"

    def largest_block(self) -> int:
        return 1 + self.jacobi_window

    def build(self, context: Context) -> tuple[JacobiDrafter, Rule]:
        if self.init in ("above", "previous-frame") and context.constraint is None:
            raise SoonerError(
                f"init='{self.init}' needs a model that draws on a grid; use 'last', 'left' or "
                "'random'"
            )
        frames = 0 if context.constraint is None else context.constraint.grid.frames
        init = self.init or {0: "last", 1: "above"}.get(frames, "previous-frame")
        coupling = weakened(COUPLINGS[self.coupling], self.strength)
        drafter = JacobiDrafter(context, self.jacobi_window, coupling, init)
        return drafter, follow_shared_noise if self.judges_by_noise else reject

    @property
    def judges_by_noise(self) -> bool:
        """Whether what is drawn is a function of the seed alone, whatever the window."""
        if self.verify is None:
            return self.coupling == "gumbel" and self.strength >= 1
        return self.verify == "noise"
