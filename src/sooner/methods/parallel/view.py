"""What the decoder may believe of a worker's board: tokens behind the newest text."""

from __future__ import annotations

from .board import Board


class View:
    """Reads a board's rows, each only once the worker has taken the update that changed it.

    Args:
        board: the worker's.

    Attributes:
        number: of the last update.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        self.number = 0
        self._changed: dict[int, int] = {}  # original row -> update that must be acknowledged

    def commit(self, said: dict[int, tuple[int, list[int]]]) -> None:
        """An update is about to be sent: `(place, new tokens)` of each original row.

        Rows whose draft is what was said can be read on; the others show what is thrown away until
        the worker acknowledges the update.
        """
        self.number += 1
        for row, (place, new) in said.items():
            if self.board.read(row, place, len(new)) != new:
                self._changed[row] = self.number

    def needed(self, rows: list[int]) -> int:
        """The update that must be acknowledged before all of `rows` can be read."""
        return max(self._changed.get(row, 0) for row in rows)

    def read(self, row: int, place: int, limit: int) -> list[int]:
        """Up to `limit` draft tokens of original row `row` from `place`; none while in doubt."""
        if self.board.acknowledged < self._changed.get(row, 0):
            return []
        return self.board.read(row, place, limit)
