"""What a step knows of each row, in tensors that stay where they are while rows come and go."""

from __future__ import annotations

from torch import Tensor


class RowTensor:
    """A tensor with room for so many rows; the first of them are in use.

    Rows leave and join in place, so that the address stays what it is: a captured graph may hold
    it. Only rows beyond the room take new memory.

    Args:
        rows: what the rows in use hold.
        max_rows: room.
        axis: of the rows.

    Attributes:
        whole: with the rows that are not in use, whose values mean nothing.
        used: a view of those in use.
    """

    def __init__(self, rows: Tensor, max_rows: int = 1, axis: int = 0) -> None:
        self.axis = axis
        self.whole = self.used = rows
        self._make_room(max(max_rows, rows.shape[axis]))

    def _make_room(self, rows: int) -> None:
        shape = list(self.used.shape)
        have, shape[self.axis] = shape[self.axis], rows
        self.whole, kept = self.used.new_zeros(shape), self.used
        self.use(have).copy_(kept)

    def use(self, rows: int) -> Tensor:
        """The first so many rows, which are in use from now on."""
        self.used = self.whole.narrow(self.axis, 0, rows)
        return self.used

    def keep_rows(self, rows: Tensor) -> None:
        """Drop every row in use but those with these indices, `[kept]`."""
        kept = self.used.index_select(self.axis, rows.to(self.used.device))
        self.use(len(rows)).copy_(kept)

    def join(self, other: Tensor) -> None:
        """Put the rows of `other` behind those in use."""
        have, come = self.used.shape[self.axis], other.shape[self.axis]
        if have + come > self.whole.shape[self.axis]:
            self._make_room(have + come)
        self.use(have + come).narrow(self.axis, have, come).copy_(other)
