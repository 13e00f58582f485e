"""What the iterations of a Jacobi run did, for those who study them."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from ...decoding.interface import Outcome


@dataclass
class Trace:
    """Collects, round by round, how drafts were drawn again.

    Attributes:
        rounds: one entry for each round in which something was drawn again; see `Round`.
    """

    rounds: list[Round] = field(default_factory=list)

    def resampled(
        self,
        outcome: Outcome,
        drafted: Tensor,
        p: Tensor,
        q: Tensor,
        x: Tensor,
        y: Tensor,
        places: Tensor,
    ) -> None:
        """Told the newest distributions `p`, the old `q`, the old drafts `x` and the new `y`."""
        distance = 0.5 * (p - q).abs().sum(-1)  # [rows, places]
        self.rounds.append(
            Round(
                rows=list(outcome.rows.active),
                places=places.cpu(),
                drafted=drafted.cpu(),
                distance=distance.cpu(),
                collision=(p * q).sum(-1).cpu(),
                old=x.cpu(),
                new=y.cpu(),
            )
        )


@dataclass(frozen=True)
class Round:
    """Places that one round drew again; all tensors are `[rows, places]`.

    Attributes:
        rows: original rows.
        places: number of generated tokens before each place.
        drafted: which of them had a draft before.
        distance: total variation between the place's last two distributions; `1 - distance` is the
            acceptance rate that figure 3 draws.
        collision: chance that independent draws agree (proposition 2).
        old, new: the drafts.
    """

    rows: list[int]
    places: Tensor
    drafted: Tensor
    distance: Tensor
    collision: Tensor
    old: Tensor
    new: Tensor
