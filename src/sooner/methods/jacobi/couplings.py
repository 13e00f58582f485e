"""Ways to draw a place of the window: again, so that the draft looks like the last one, and first.

Notation of the paper: `q` is the distribution that the last draft `x` was drawn from, `p` the
newest one of the same place. Every coupling returns tokens whose distribution is `p`, and `p` is
then what the next round must be told they were drawn from.

A *filling* is the first draft of a place that no iteration has looked at yet: a token, and what it
was drawn from. A copied token was drawn from the distribution that has it for certain, so it is
accepted with the target's probability of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ...engine.acceptance import residual
from ...engine.grid import GridConstraint, TokenGrid
from ...engine.noise import Purpose, RowNoise, first_to_come
from ...engine.sampling import pick


@dataclass(frozen=True)
class Draws:
    """Where the randomness of one round comes from."""

    noise: RowNoise  # of the rows, at the first place of the window
    ahead: Tensor  # [places] of the window, counted from there

    @property
    def places(self) -> Tensor:
        """Returns number of generated tokens before each draw, `[rows, places]`."""
        return self.noise.places[:, None] + self.ahead

    def uniforms(self, purpose: Purpose) -> Tensor:
        """Returns uniform numbers that are fresh in every round, `[rows, places]`."""
        return self.noise.uniforms(purpose, self.ahead, is_fresh=True)

    def waiting(self, vocab: int) -> Tensor:
        """Returns the shared noise `w = exp(-g)` of each place, `[rows, places, vocab]`."""
        return self.noise.waiting(Purpose.GUMBEL, self.ahead, vocab)

    def of(self, places: slice) -> Draws:
        """Returns the draws of some places of the window."""
        return replace(self, ahead=self.ahead[places])


Coupling = Callable[[Tensor, Tensor, Tensor, Draws], Tensor]
"""`(p, q, x, draws)` to tokens; `p` and `q` are `[rows, places, vocab]`, `x` `[rows, places]`."""


def independent(p: Tensor, q: Tensor, x: Tensor, draws: Draws) -> Tensor:
    """Draw from `p` afresh: speculative Jacobi decoding (Teng et al. 2024).

    The draws agree with probability `sum p q` (proposition 2).
    """
    return pick(p, draws.uniforms(Purpose.AFRESH))


def maximal(p: Tensor, q: Tensor, x: Tensor, draws: Draws) -> Tensor:
    """Keep `x` with `min(1, p(x) / q(x))`, else draw from `norm(max(p - q, 0))` (algorithm 3).

    The draws agree with probability `1 - TV(p, q)`, which no coupling exceeds (theorem 2).
    """
    index = x[..., None]
    stays = draws.uniforms(Purpose.STAY) * q.gather(-1, index)[..., 0] < p.gather(-1, index)[..., 0]
    return torch.where(stays, x, pick(residual(p, q), draws.uniforms(Purpose.REPLACE)))


def shared_noise(p: Tensor, q: Tensor, x: Tensor, draws: Draws) -> Tensor:
    """Returns `argmax(log p + g)` with the noise `g` of the place (algorithm 4).

    Any two iterations, however far apart, agree with probability `(1 - TV) / (1 + TV)` at least
    (theorem 3).
    """
    return gumbel_draw(p, draws)


def gumbel_draw(p: Tensor, draws: Draws) -> Tensor:
    """Returns one draw from each distribution with the noise of its place, `[rows, places]`."""
    return first_to_come(p, draws.waiting(p.shape[-1]))


def weakened(coupling: Coupling, strength: float) -> Coupling:
    """Couple each place with probability `strength`, else draw it afresh (algorithm 7)."""
    if strength >= 1:
        return coupling
    if strength <= 0:
        return independent

    def draw(p: Tensor, q: Tensor, x: Tensor, draws: Draws) -> Tensor:
        coupled = draws.uniforms(Purpose.COUPLE) < strength
        return torch.where(coupled, coupling(p, q, x, draws), independent(p, q, x, draws))

    return draw


COUPLINGS: dict[str, Coupling] = {
    "independent": independent, "maximal": maximal, "gumbel": shared_noise,
}  # fmt: skip


@dataclass(frozen=True)
class JacobiWindow:
    """The end of a window, in which the last places of each row have no draft yet.

    Attributes:
        tokens: `[rows, places]`; what stands at unfilled places is meaningless.
        probs: what they were drawn from, `[rows, places, vocab]`.
        newest: the last distribution that the target gave, `[rows, vocab]`.
        filled: places of each row that have a draft, `[rows]`, and `minimum`: fewest of a row.
        grid_places: place of each token in its picture, `[rows, places]`; -1 outside of one.
        output: the end of each row's picture before these places, earlier places of the window
            included, `[rows, seen]`, padded with -1 on the left.
        draws: randomness; `draws.places` are those of `tokens`.
        constraint: what each place allows, if the family says.
    """

    tokens: Tensor
    probs: Tensor
    newest: Tensor
    filled: Tensor
    minimum: int
    grid_places: Tensor
    output: Tensor
    draws: Draws
    constraint: GridConstraint | None = None

    def unfilled(self) -> Tensor:
        """Returns `[rows, places]` bool."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) >= self.filled[:, None]


Filling = Callable[[JacobiWindow], tuple[Tensor, Tensor]]
"""Fills the unfilled places: `(tokens, probs)` of all places."""


def at_random(window: JacobiWindow) -> tuple[Tensor, Tensor]:
    """Uniformly from the ids that a place allows, with the noise that later draws will share."""
    allowed = _allowed(window).to(window.probs.dtype)
    uniform = allowed / allowed.sum(-1, keepdim=True)
    return _fill(window, gumbel_draw(uniform, window.draws), uniform)


def like_last(window: JacobiWindow) -> tuple[Tensor, Tensor]:
    """Draws from the newest distribution, which looked at a neighbour, with shared noise."""
    allowed = _allowed(window)
    weights = torch.where(allowed, window.newest[:, None], 0.0)  # [rows, places, vocab]
    mass = weights.sum(-1, keepdim=True)
    flat = allowed / allowed.sum(-1, keepdim=True)
    probs = torch.where(mass > 0, weights / mass.clamp(min=torch.finfo(mass.dtype).tiny), flat)
    return _fill(window, gumbel_draw(probs, window.draws), probs)


def copied(window: JacobiWindow, way: str) -> tuple[Tensor, Tensor]:
    """Returns a copy of an earlier token, the first within `reach` that the place may be.

    Where none is (the first row of a picture has nothing above it), at random.
    """
    tokens, probs = at_random(window)
    line = torch.cat([window.output, tokens], 1)  # [rows, seen + places]
    seen = window.output.shape[1]
    allowed, unfilled = _allowed(window), window.unfilled()
    certain = torch.zeros_like(unfilled)
    offsets = reach(way, None if window.constraint is None else window.constraint.grid)
    # Left to right, because a copy may be a copy of a copy.
    for place in range(window.minimum, tokens.shape[1]):
        for offset in offsets:
            source = seen + place - offset
            if source < 0:
                continue
            token = line[:, source]
            fits = allowed[:, place].gather(1, token.clamp(min=0)[:, None])[:, 0] & (token >= 0)
            fits &= unfilled[:, place] & ~certain[:, place]
            line[:, seen + place] = torch.where(fits, token, line[:, seen + place])
            certain[:, place] |= fits
    copies = line[:, seen:]
    onehot = torch.zeros_like(probs).scatter_(2, copies[..., None], 1.0)
    return copies, torch.where(certain[..., None], onehot, probs)


COPIES = ("previous-frame", "above", "left")
"""Ways of copying: each tries the neighbours of those behind it, too."""


def reach(way: str, grid: TokenGrid | None) -> tuple[int, ...]:
    """Returns how far back a way of copying looks, the first choice first."""
    if grid is None:
        return (1,)
    left = (1,) if grid.row_end is None else (1, 2)
    return (grid.frame, grid.row, *left)[COPIES.index(way) :]


FILLINGS: dict[str, Filling] = {
    "random": at_random,
    "last": like_last,
    **{way: partial(copied, way=way) for way in COPIES[::-1]},
}


def _allowed(window: JacobiWindow) -> Tensor:
    if window.constraint is None:
        return torch.ones_like(window.probs, dtype=torch.bool)
    return window.constraint.masks(window.grid_places)


def _fill(window: JacobiWindow, tokens: Tensor, probs: Tensor) -> tuple[Tensor, Tensor]:
    empty = window.unfilled()
    return (
        torch.where(empty, tokens, window.tokens),
        torch.where(empty[..., None], probs, window.probs),
    )
