"""A row that made room for older ones, and goes on later as if it had not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from ..loop import Decoding, Session
from ..noise import RowNoise


@dataclass(frozen=True)
class InterruptedRow:
    """What has to be known of a row to go on.

    Attributes:
        said: what it said, all in all.
        limit: tokens that it may say, all in all.
        seeds: of its draws, `[1]`.
    """

    output: list[int]
    limit: int | None
    seeds: Tensor

    @staticmethod
    def of(decoding: Decoding, original: int, before: InterruptedRow | None) -> InterruptedRow:
        """Returns a row of a batch, which may have been interrupted before.

        Args:
            decoding: the batch.
            original: its row.
            before: what was known when the row began.
        """
        session, _ = decoding.sessions.of(original)
        new = list(decoding.rows.generated[original])
        if before is not None:
            return replace(before, output=[*before.output, *new])
        row = decoding.rows.active.index(original) if original in decoding.rows.active else 0
        seeds = decoding.state.noise.seeds[row : row + 1].clone()
        return InterruptedRow(new, session.stopping.limit, seeds)

    def go_on(self, session: Session) -> None:
        """Let a session that was made with `output` behind its prompt draw and end as this row."""
        session.noise = RowNoise(self.seeds, session.noise.places)
        if self.limit is not None and session.stopping.limit is not None:
            left = self.limit - len(self.output)
            session.target.cache.capacity -= session.stopping.limit - left
            session.stopping.limit = left
