"""A row that was preempted, and continues later as if it had not been."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ..loop import Decoding, Session
from ..noise import RowNoise


@dataclass(frozen=True)
class PreemptedRow:
    """Holds what a preempted row needs to continue.

    Attributes:
        output: all tokens that it has generated.
        limit: tokens that it may generate in all.
        seeds: of its draws, `[1]`.
    """

    output: list[int]
    limit: int | None
    seeds: Tensor

    @staticmethod
    def of(decoding: Decoding, original: int, before: PreemptedRow | None) -> PreemptedRow:
        """Returns a row of a batch, which may have been preempted before.

        Args:
            decoding: the batch.
            original: its row.
            before: the row as it was preempted last.
        """
        session, _ = decoding.sessions.of(original)
        new = list(decoding.rows.generated[original])
        if before is not None:
            return replace(before, output=[*before.output, *new])
        row = decoding.rows.active.index(original) if original in decoding.rows.active else 0
        seeds = decoding.state.noise.seeds[row : row + 1].clone()
        return PreemptedRow(new, session.stopping.limit, seeds)

    def restore(self, session: Session) -> None:
        """Makes a session, whose prompt ends with `output`, draw and end as this row would."""
        session.noise = RowNoise(self.seeds, session.noise.places)
        if self.limit is not None and session.stopping.limit is not None:
            left = self.limit - len(self.output)
            session.target.cache.capacity -= session.stopping.limit - left
            session.stopping.limit = left
