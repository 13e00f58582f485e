"""Ways to draw the next draft so that it looks like the last one.

Notation of the paper: `q` is the distribution that the last draft `x` was drawn from, `p` the
newest one of the same place. Every coupling returns tokens whose distribution is `p`, and `p` is
then what the next round must be told they were drawn from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

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
    return torch.where(stays, x, pick(_above(p, q), draws.uniforms(Purpose.REPLACE)))


def _above(p: Tensor, q: Tensor) -> Tensor:
    """Weights `max(p - q, 0)`, or `p` where floating point leaves nothing of them."""
    rest = (p - q).clamp_(min=0.0)
    return rest.addcmul_(p, (rest.sum(-1, keepdim=True) <= 0).to(p.dtype))


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
    "independent": independent,
    "maximal": maximal,
    "gumbel": shared_noise,
}
